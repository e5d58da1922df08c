/// One deadline for each peer that has one, the earliest first: a heap that knows where each peer's entry is.
struct Deadlines: Sendable {
    private var heap: [(time: Duration, slot: Int)] = []
    /// By slot; -1 for a peer without a deadline.
    private var positions: [Int] = []

    var first: (time: Duration, slot: Int)? { heap.first }
    var count: Int { heap.count }

    /// nil for none.
    mutating func set(_ slot: Int, _ time: Duration?) {
        while positions.count <= slot { positions.append(-1) }
        let position = positions[slot]
        guard let time else {
            if position >= 0 { remove(at: position) }
            return
        }
        if position < 0 {
            heap.append((time, slot))
            positions[slot] = heap.count - 1
            rise(heap.count - 1)
        } else {
            heap[position].time = time
            rise(position)
            sink(positions[slot])
        }
    }

    /// Moves a deadline, unless it is earlier already.
    @inline(__always)
    mutating func lower(_ slot: Int, _ time: Duration) {
        if slot < positions.count, positions[slot] >= 0, heap[positions[slot]].time <= time { return }
        set(slot, time)
    }

    private mutating func remove(at position: Int) {
        positions[heap[position].slot] = -1
        let last = heap.removeLast()
        guard position < heap.count else { return }
        heap[position] = last
        positions[last.slot] = position
        rise(position)
        sink(positions[last.slot])
    }

    private mutating func rise(_ start: Int) {
        var child = start
        while child > 0 {
            let parent = (child - 1) / 2
            guard heap[child].time < heap[parent].time else { return }
            swap(child, parent)
            child = parent
        }
    }

    private mutating func sink(_ start: Int) {
        var parent = start
        while true {
            var least = parent
            for child in [2 * parent + 1, 2 * parent + 2] where child < heap.count {
                if heap[child].time < heap[least].time { least = child }
            }
            guard least != parent else { return }
            swap(parent, least)
            parent = least
        }
    }

    private mutating func swap(_ a: Int, _ b: Int) {
        heap.swapAt(a, b)
        positions[heap[a].slot] = a
        positions[heap[b].slot] = b
    }
}
