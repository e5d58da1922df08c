import CPlatform

/// What the client tells on stderr. Each line names the program, since git shows it among those of the server.
struct BuiltInSSHMessages {
    var isVerbose = false

    func say(_ line: String) {
        let bytes = Array("workspace-agent: \(Self.clean(line))\n".utf8)
        bytes.withUnsafeBytes { area in
            var rest = area[...]
            while let base = UnsafeRawBufferPointer(rebasing: rest).baseAddress, !rest.isEmpty {
                let count = wa_write(2, base, rest.count)
                guard count > 0 else { return }
                rest = rest.dropFirst(count)
            }
        }
    }

    /// Said with -v only.
    func step(_ line: @autoclosure () -> String) { if isVerbose { say(line()) } }

    /// Servers' texts and file names come in here; none shall move the cursor.
    static func clean(_ text: String) -> String {
        var scalars = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            scalars.append(scalar.properties.generalCategory == .control ? "?" : scalar)
        }
        return String(scalars)
    }
}
