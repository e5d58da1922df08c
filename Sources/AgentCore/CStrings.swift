import Glibc

/// Lends the strings as a NULL-terminated array of C strings.
public func withCStrings(_ strings: [String], _ body: (UnsafePointer<UnsafeMutablePointer<CChar>?>) -> Void) {
    var pointers: [UnsafeMutablePointer<CChar>?] = strings.map { strdup($0) }
    pointers.append(nil)
    defer { for pointer in pointers { free(pointer) } }
    pointers.withUnsafeBufferPointer { if let base = $0.baseAddress { body(base) } }
}
