/// Deadlines of things that are numbered from 0, at most one for each: a binary heap that knows where each one is.
struct TimerHeap: Sendable {
    private var heap: [(deadline: Microseconds, item: UInt32)] = []
    /// Where each item is in the heap; -1 when it isn't.
    private var positions: [Int32] = []

    var isEmpty: Bool { heap.isEmpty }
    var first: Microseconds { heap.first?.deadline ?? .never }
    var count: Int { heap.count }

    func deadline(of item: Int) -> Microseconds {
        guard item < positions.count, positions[item] >= 0 else { return .never }
        return heap[Int(positions[item])].deadline
    }

    /// Takes the first item that is due.
    mutating func popDue(_ now: Microseconds) -> Int? {
        guard let first = heap.first, first.deadline <= now else { return nil }
        set(Int(first.item), .never)
        return Int(first.item)
    }

    /// Sets, moves or removes (``Microseconds/never``) a deadline.
    mutating func set(_ item: Int, _ deadline: Microseconds) {
        while positions.count <= item { positions.append(-1) }
        let position = Int(positions[item])
        if deadline == .never {
            guard position >= 0 else { return }
            positions[item] = -1
            let last = heap.removeLast()
            if position < heap.count {
                place(last, position)
                rise(position)
                sink(position)
            }
        } else if position >= 0 {
            heap[position].deadline = deadline
            rise(position)
            sink(Int(positions[item]))
        } else {
            heap.append((deadline, UInt32(item)))
            positions[item] = Int32(heap.count - 1)
            rise(heap.count - 1)
        }
    }

    private mutating func place(_ entry: (deadline: Microseconds, item: UInt32), _ position: Int) {
        heap[position] = entry
        positions[Int(entry.item)] = Int32(position)
    }

    private mutating func rise(_ start: Int) {
        var position = start
        let entry = heap[position]
        while position > 0, heap[(position - 1) / 2].deadline > entry.deadline {
            place(heap[(position - 1) / 2], position)
            position = (position - 1) / 2
        }
        place(entry, position)
    }

    private mutating func sink(_ start: Int) {
        var position = start
        let entry = heap[position]
        while true {
            var child = 2 * position + 1
            guard child < heap.count else { break }
            if child + 1 < heap.count, heap[child + 1].deadline < heap[child].deadline { child += 1 }
            guard heap[child].deadline < entry.deadline else { break }
            place(heap[child], position)
            position = child
        }
        place(entry, position)
    }
}
