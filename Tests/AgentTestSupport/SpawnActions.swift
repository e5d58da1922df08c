import Glibc

/// Adds to the actions that the child closes all descriptors from this one on (glibc 2.34). Sockets of tests
/// beside this one would stay open in the child otherwise, and their peers wait for an end.
///
/// Declared by hand: Swift's Glibc module does not see it.
@_silgen_name("posix_spawn_file_actions_addclosefrom_np") @discardableResult
private func addclosefrom(_ actions: UnsafeMutablePointer<posix_spawn_file_actions_t>, _ first: CInt) -> CInt

/// Has the child close all descriptors from this one on.
public func closeInChild(_ actions: inout posix_spawn_file_actions_t, from first: CInt) {
    addclosefrom(&actions, first)
}
