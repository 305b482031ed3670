package main

import (
	"bufio"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
)

// forgetProgram has the kernel unmap what of the program's code and constants
// is mapped. Start-up touches most of them once, and they count as resident for
// ever; what is needed again is mapped again from the page cache, without a read.
// It may be done only to what the linker has left as it is in the file: not to
// the data of a program that was relocated when it was loaded.
func forgetProgram() {
	if !linkedAtFixedAddresses() {
		return
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// address-address perms offset dev inode path
		fields := strings.Fields(lines.Text())
		if len(fields) != 6 || fields[5] != program || strings.Contains(fields[1], "w") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err := strconv.ParseUint(from, 16, 64)
		if err != nil {
			continue
		}
		end, err := strconv.ParseUint(to, 16, 64)
		if err != nil {
			continue
		}
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), uintptr(end-start), syscall.MADV_DONTNEED)
	}
}

// linkedAtFixedAddresses tells whether the program was built as ours are.
func linkedAtFixedAddresses() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	built := make(map[string]string)
	for _, s := range info.Settings {
		built[s.Key] = s.Value
	}
	return built["-buildmode"] == "exe" && built["CGO_ENABLED"] == "0"
}
