import FoundationEssentials

/// The report of `portabledesktop up --json` on the desktop that it started
/// (docs/contracts/desktop.md#the-report-of-up).
struct UpReport: Equatable {
    var vncPort: Int
    /// `:1`; the program may also report it as a number.
    var display: String
    var xvncPid: Int32
    /// nil without a window manager.
    var openboxPid: Int32?
    var sessionDir: String?

    /// Finds the report in the program's output: the whole output, else the last line that is a report.
    /// - Throws: ``Problem`` that says what is wrong with the output.
    static func find(in output: [UInt8]) throws(Problem) -> UpReport {
        guard !output.allSatisfy({ $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: " ") }) else {
            throw Problem("printed nothing")
        }
        var problem = Problem("printed no JSON that describes a desktop")
        for line in [output[...]] + output.split(separator: UInt8(ascii: "\n")).reversed()
        where line.contains(UInt8(ascii: "{")) {
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
        guard (1...65_535).contains(vncPort) else { throw Problem("printed vncPort \(vncPort), which is not a port") }
        guard xvncPid > 1 else { throw Problem("printed xvncPid \(xvncPid), which is not a process of its own") }
        let number = display.dropFirst().prefix { $0 != "." }
        guard display.first == ":", let value = UInt16(number), "\(value)" == number else {
            throw Problem("printed display \"\(display.prefix(40))\", which is not a local display")
        }
    }
}

extension UpReport: Decodable {
    private enum CodingKeys: CodingKey { case vncPort, display, xvncPid, openboxPid, sessionDir }

    init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        vncPort = try values.decode(Int.self, forKey: .vncPort)
        xvncPid = try values.decode(Int32.self, forKey: .xvncPid)
        openboxPid = try values.decodeIfPresent(Int32.self, forKey: .openboxPid)
        sessionDir = try values.decodeIfPresent(String.self, forKey: .sessionDir)
        display = try values.display(forKey: .display)
    }
}

/// The fields of the program's state file that are needed to clean up; others, and invalid ones, are ignored.
struct StateFile: Decodable, Equatable {
    var display: String?
    var xvncPid: Int32?
    var openboxPid: Int32?
    var sessionDir: String?

    private enum CodingKeys: CodingKey { case display, xvncPid, openboxPid, sessionDir }

    init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        display = try? values.display(forKey: .display)
        xvncPid = try? values.decode(Int32.self, forKey: .xvncPid)
        openboxPid = try? values.decode(Int32.self, forKey: .openboxPid)
        sessionDir = try? values.decode(String.self, forKey: .sessionDir)
    }
}

extension KeyedDecodingContainer {
    /// A display, given by number or by name.
    fileprivate func display(forKey key: Key) throws -> String {
        if let number = try? decode(Int.self, forKey: key) { return ":\(number)" }
        return try decode(String.self, forKey: key)
    }
}
