import Glibc

/// A descriptor that is closed when nothing owns it any more, so that no way out of a function leaks it.
package struct OwnedDescriptor: ~Copyable {
    package let number: CInt

    /// Takes over a descriptor; a negative number is none.
    package init(_ number: CInt) { self.number = number }

    deinit { if number >= 0 { close(number) } }

    /// Gives the descriptor to the caller, who closes it.
    package consuming func take() -> CInt {
        let number = number
        discard self
        return number
    }
}
