package redis

import "strings"

// slotCount is how many slots a cluster has.
const slotCount = 16384

// slotOf returns the slot of a name in a cluster: a checksum of what stands
// between its first braces, if that is anything, or else of all of it.
func slotOf(name string) int {
	if _, tail, ok := strings.Cut(name, "{"); ok {
		if tag, _, closed := strings.Cut(tail, "}"); closed && tag != "" {
			name = tag
		}
	}
	var crc uint16 // CRC-16/XMODEM
	for i := range len(name) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^name[i]]
	}
	return int(crc % slotCount)
}

var crcTable = func() (table [256]uint16) {
	const polynomial = 0x1021
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= polynomial
			}
		}
		table[i] = crc
	}
	return table
}()

// slotTable says which node has which slot. It does not change.
type slotTable struct {
	nodes  []*node // those that have any
	owners [slotCount]uint16
}

// noOwner marks a slot that nobody has.
const noOwner = 1<<16 - 1

// owner returns the node that has a slot, or nil. There may be no table yet.
func (t *slotTable) owner(slot int) *node {
	if t == nil || t.owners[slot] == noOwner {
		return nil
	}
	return t.nodes[t.owners[slot]]
}

// with returns a table in which a node has a slot.
func (t *slotTable) with(slot int, n *node) *slotTable {
	next := &slotTable{owners: t.owners, nodes: append([]*node(nil), t.nodes...)}
	for i, other := range next.nodes {
		if other == n {
			next.owners[slot] = uint16(i)
			return next
		}
	}
	next.owners[slot] = uint16(len(next.nodes))
	next.nodes = append(next.nodes, n)
	return next
}

// slotRange is slots in a row that one server has.
type slotRange struct {
	first, last int
	at          Address
}

// newTable makes a table of ranges; node returns the node at an address.
func newTable(ranges []slotRange, node func(Address) *node) *slotTable {
	t := &slotTable{}
	for slot := range t.owners {
		t.owners[slot] = noOwner
	}
	index := make(map[Address]uint16)
	for _, r := range ranges {
		i, known := index[r.at]
		if !known {
			i = uint16(len(t.nodes))
			index[r.at] = i
			t.nodes = append(t.nodes, node(r.at))
		}
		for slot := r.first; slot <= r.last; slot++ {
			t.owners[slot] = i
		}
	}
	return t
}
