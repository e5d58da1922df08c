/// The fields of the ssh protocol's keys: each has its length in front, four bytes, most significant first.
enum SSHFields {
    /// Takes the next field; nil when there is none that is whole.
    static func next(_ bytes: inout ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
        guard bytes.count >= 4 else { return nil }
        let count = bytes.prefix(4).reduce(0) { $0 << 8 | Int($1) }
        let rest = bytes.dropFirst(4)
        guard rest.count >= count else { return nil }
        bytes = rest.dropFirst(count)
        return rest.prefix(count)
    }

    /// All fields; nil when something else is behind them.
    static func all(_ bytes: [UInt8]) -> [ArraySlice<UInt8>]? {
        var rest = bytes[...]
        var fields: [ArraySlice<UInt8>] = []
        while !rest.isEmpty {
            guard let field = next(&rest) else { return nil }
            fields.append(field)
        }
        return fields
    }
}
