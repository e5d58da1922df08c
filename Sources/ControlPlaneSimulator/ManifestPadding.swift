import AgentProto
import SwiftProtobuf

// Manifests of a given size.
extension AgentService {
    /// Pads the map of relays, which is what makes real manifests large.
    static func pad(_ manifest: Coder_Agent_V2_Manifest, to target: Int) -> Coder_Agent_V2_Manifest {
        func size(_ manifest: Coder_Agent_V2_Manifest) -> Int {
            (try? manifest.serializedBytes() as [UInt8])?.count ?? 0
        }
        var padded = manifest
        var padding = target - size(manifest)
        // The lengths of what lies around the padding take some bytes, how many depends on them.
        for _ in 0..<4 where padding > 0 {
            padded.derpMap = relays(manifest.derpMap, padding)
            let excess = size(padded) - target
            if excess == 0 { break }
            padding -= excess
        }
        return padded
    }

    private static func relays(_ map: Coder_Tailnet_V2_DERPMap, _ padding: Int) -> Coder_Tailnet_V2_DERPMap {
        // Field 1000, bytes: far from any that has a meaning.
        var bytes: [UInt8] = [0xc2, 0x3e]
        var length = padding
        while length >= 0x80 {
            bytes.append(UInt8(truncatingIfNeeded: length) | 0x80)
            length >>= 7
        }
        bytes.append(UInt8(truncatingIfNeeded: length))
        bytes += [UInt8](repeating: 0x78, count: padding)
        var padded = map
        // Fails for no bytes: they are one field.
        try? padded.merge(serializedBytes: bytes)
        return padded
    }
}
