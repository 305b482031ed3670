package locker

import (
	"testing"
	"unsafe"
)

func TestAGrantFitsIntoTheAllocatorsClassOf256Bytes(t *testing.T) {
	if size := unsafe.Sizeof(grant{}); size > 256 {
		t.Errorf("a grant takes %d bytes, and the next class has 288", size)
	}
}
