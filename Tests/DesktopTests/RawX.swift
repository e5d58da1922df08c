import AgentTestSupport
import Foundation

@testable import Desktop

/// An X11 client by hand, which sets any property to any bytes, and plays a window manager.
final class RawX {
    private let connection: RawConnection
    private let base: UInt32
    let root: UInt32
    private var atoms: [String: UInt32] = ["ATOM": 4, "CARDINAL": 6, "STRING": 31, "WINDOW": 33, "WM_NAME": 39]
    private var made: UInt32 = 0

    init(on display: String) throws {
        connection = try RawConnection(unix: "/tmp/.X11-unix/X\(display.dropFirst())")
        try connection.send(Data([UInt8(ascii: "l"), 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
        let head = [UInt8](try connection.receive(exactly: 8))
        guard head[0] == 1 else { throw DeadlineExceeded(what: "an X server that takes us") }
        let setup = [UInt8](try connection.receive(exactly: Int(Self.number(head[6..<8])) * 4))
        base = Self.number(setup[4..<8])
        let vendor = Int(Self.number(setup[16..<18]))
        let screens = 32 + (vendor + 3) / 4 * 4 + Int(setup[21]) * 8
        root = Self.number(setup[screens..<(screens + 4)])
    }

    private static func number(_ bytes: ArraySlice<UInt8>) -> UInt32 {
        bytes.reversed().reduce(0) { $0 << 8 | UInt32($1) }
    }

    static func bytes(_ values: UInt32...) -> [UInt8] { bytes(values) }
    static func bytes(_ values: [UInt32]) -> [UInt8] {
        values.flatMap { value in (0..<4).map { UInt8(value >> ($0 * 8) & 255) } }
    }
    private static func half(_ value: Int) -> [UInt8] { [UInt8(value & 255), UInt8(value >> 8 & 255)] }

    private func send(_ code: UInt8, _ body: [UInt8]) throws {
        let padded = body + [UInt8](repeating: 0, count: (4 - body.count % 4) % 4)
        try connection.send(Data([code, 0] + Self.half(1 + padded.count / 4) + padded))
    }

    /// The next reply, all of which have 32 bytes here.
    private func reply() throws -> [UInt8] {
        while true {
            let packet = [UInt8](try connection.receive(exactly: 32))
            if packet[0] == 0 { throw DeadlineExceeded(what: "an X request: error \(packet[1])") }
            if packet[0] == 1 { return packet }
        }
    }

    /// Returns when the server has processed everything.
    func sync() throws {
        try send(43, [])
        _ = try reply()
    }

    func atom(_ name: String) throws -> UInt32 {
        if let known = atoms[name] { return known }
        try send(16, Self.half(name.utf8.count) + [0, 0] + Array(name.utf8))
        let atom = Self.number(try reply()[8..<12])
        atoms[name] = atom
        return atom
    }

    func set(_ window: UInt32, _ name: String, _ type: String, format: UInt8 = 8, _ bytes: [UInt8]) throws {
        let head = Self.bytes(window, try atom(name), try atom(type))
        try send(18, head + [format, 0, 0, 0] + Self.bytes(UInt32(bytes.count) / UInt32(format / 8)) + bytes)
        try sync()
    }

    func set(_ window: UInt32, title: String) throws {
        try set(window, "_NET_WM_NAME", "UTF8_STRING", Array(title.utf8))
    }

    /// A window of 20 by 10 pixels at 30, 40; not shown.
    func window(titled title: String? = nil) throws -> UInt32 {
        made += 1
        let id = base + made
        let place = [30, 40, 20, 10, 0, 0].flatMap(Self.half)
        try send(1, Self.bytes(id, root) + place + Self.bytes(0, 0))
        if let title { try set(id, title: title) }
        try sync()
        return id
    }

    func show(_ window: UInt32) throws {
        try send(8, Self.bytes(window))
        try sync()
    }

    func destroy(_ window: UInt32) throws {
        try send(4, Self.bytes(window))
        try sync()
    }

    // MARK: As a window manager

    func announce() throws {
        let own = try window()
        for window in [root, own] {
            try set(window, "_NET_SUPPORTING_WM_CHECK", "WINDOW", format: 32, Self.bytes(own))
        }
    }

    func list(_ windows: [UInt32]) throws {
        try set(root, "_NET_CLIENT_LIST_STACKING", "WINDOW", format: 32, Self.bytes(windows))
    }
}
