import Glibc

/// Arguments as this process got them; they need not be UTF-8.
package struct RawArguments {
    private let pointers: [UnsafeMutablePointer<CChar>]

    /// The last ones of this process.
    package init(last count: Int) {
        let all = (0..<Int(CommandLine.argc)).compactMap { CommandLine.unsafeArgv[$0] }
        pointers = all.suffix(count)
    }

    /// None.
    package init() { pointers = [] }

    /// Lends them behind others, in the form that exec takes.
    package func lend(
        behind own: [String], _ body: (UnsafePointer<UnsafeMutablePointer<CChar>?>) -> Void
    ) {
        let copies = own.map { strdup($0) }
        defer { for copy in copies { free(copy) } }
        let all = copies + pointers.map { Optional($0) } + [nil]
        all.withUnsafeBufferPointer { if let base = $0.baseAddress { body(base) } }
    }
}
