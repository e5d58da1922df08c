import Foundation

/// A recorded file beside the tests that use it.
public enum VectorFile {
    /// The JSON of `Vectors/NAME`.
    /// - Parameter tests: the file of the test.
    public static func read(_ name: String, tests: String = #filePath) throws -> [String: Any] {
        let file = URL(fileURLWithPath: tests).deletingLastPathComponent().appendingPathComponent("Vectors/\(name)")
        guard let all = try JSONSerialization.jsonObject(with: Data(contentsOf: file)) as? [String: Any] else {
            throw CocoaError(.fileReadCorruptFile)
        }
        return all
    }
}

/// The bytes of hexadecimal digits; nil for what is none.
public func bytes(fromHex text: Any?) -> [UInt8]? {
    guard let digits = (text as? String).map({ Array($0.utf8) }), digits.count % 2 == 0 else { return nil }
    var bytes: [UInt8] = []
    for index in stride(from: 0, to: digits.count, by: 2) {
        guard let byte = UInt8(String(decoding: digits[index..<index + 2], as: UTF8.self), radix: 16) else {
            return nil
        }
        bytes.append(byte)
    }
    return bytes
}

/// Hexadecimal digits of bytes.
public func hex(_ bytes: some Sequence<UInt8>) -> String {
    bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
}
