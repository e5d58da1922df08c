import AgentCore
import IPAddresses
import NIOCore

/// An interface of this machine.
struct NetworkInterface {
    var name: String
    /// 0 where it isn't known.
    var mtu: Int
    var addresses: [String]

    /// Those with an address, by name. Blocks.
    static func all() -> [NetworkInterface] {
        var byName: [String: [String]] = [:]
        for device in (try? System.enumerateDevices()) ?? [] {
            guard let address = device.address?.endpoint?.address else { continue }
            byName[device.name, default: []].append("\(address)")
        }
        return byName.sorted { $0.key < $1.key }.map { name, addresses in
            let text = readTextFile("/sys/class/net/\(name)/mtu") ?? ""
            return NetworkInterface(
                name: name, mtu: Int(text.prefix { !$0.isNewline }) ?? 0, addresses: addresses)
        }
    }
}
