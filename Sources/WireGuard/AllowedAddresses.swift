import IPAddresses

/// Which peer has which addresses. The longest prefix decides; an exact address is found at once.
struct AllowedAddresses: Sendable {
    private var exact: [IPAddress: Int] = [:]
    private var networks: [IPPrefix: Int] = [:]
    /// Lengths below 128 that occur, the longest first, with their number.
    private var lengths: [(bits: Int, count: Int)] = []

    func owner(of address: IPAddress) -> Int? {
        if let slot = exact[address] { return slot }
        for (bits, _) in lengths {
            if let prefix = IPPrefix(address, bits: bits), let slot = networks[prefix] { return slot }
        }
        return nil
    }

    func holder(of prefix: IPPrefix) -> Int? { prefix.bits == 128 ? exact[prefix.address] : networks[prefix] }

    mutating func add(_ prefix: IPPrefix, slot: Int) {
        guard prefix.bits < 128 else {
            exact[prefix.address] = slot
            return
        }
        guard networks.updateValue(slot, forKey: prefix) == nil else { return }
        if let index = lengths.firstIndex(where: { $0.bits <= prefix.bits }) {
            if lengths[index].bits == prefix.bits {
                lengths[index].count += 1
            } else {
                lengths.insert((prefix.bits, 1), at: index)
            }
        } else {
            lengths.append((prefix.bits, 1))
        }
    }

    mutating func remove(_ prefix: IPPrefix) {
        guard prefix.bits < 128 else {
            exact[prefix.address] = nil
            return
        }
        guard networks.removeValue(forKey: prefix) != nil,
            let index = lengths.firstIndex(where: { $0.bits == prefix.bits })
        else { return }
        lengths[index].count -= 1
        if lengths[index].count == 0 { lengths.remove(at: index) }
    }
}
