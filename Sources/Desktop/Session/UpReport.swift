import FoundationEssentials

/// What `portabledesktop up --json` says of the desktop that it started (spec: virtual desktop, the session).
struct UpReport: Decodable, Equatable {
    var vncPort: Int
    var display: String
    var xvncPid: Int32
    /// nil without a window manager.
    var openboxPid: Int32?
    var sessionDir: String?

    /// Finds the report in what the program wrote: the last line that is one.
    /// - Throws: ``Problem`` that says what is wrong with what was written.
    static func find(in output: [UInt8]) throws(Problem) -> UpReport {
        guard !output.allSatisfy({ $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: " ") }) else {
            throw Problem("printed nothing")
        }
        var problem = Problem("printed no JSON that describes a desktop")
        for line in output.split(separator: UInt8(ascii: "\n")).reversed() where line.contains(UInt8(ascii: "{")) {
            do {
                let report = try JSONDecoder().decode(UpReport.self, from: Data(line))
                try report.check()
                return report
            } catch let error as Problem {
                problem = error
            } catch {
                continue
            }
        }
        throw problem
    }

    struct Problem: Error, Equatable {
        var text: String
        init(_ text: String) { self.text = text }
    }

    private func check() throws(Problem) {
        guard (1...65_535).contains(vncPort) else { throw Problem("printed vncPort \(vncPort), which is no port") }
        guard xvncPid > 1 else { throw Problem("printed xvncPid \(xvncPid), which is no process of its own") }
        let number = display.dropFirst().prefix { $0 != "." }
        guard display.first == ":", let value = UInt16(number), "\(value)" == number else {
            throw Problem("printed display \"\(display.prefix(40))\", which is no local display")
        }
    }
}
