package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// userHZ is the unit of the times in /proc/PID/stat. The kernel fixes it to
// 100 for user space on every architecture that Go runs on.
const userHZ = 100

// cpuTime returns the user and system time that a process has used, with a
// resolution of 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseCPUTime(string(stat))
}

// parseCPUTime reads utime and stime, the 14th and 15th fields. The second
// field is the command in parentheses, which may itself hold either.
func parseCPUTime(stat string) (time.Duration, error) {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) < 13 {
		return 0, fmt.Errorf("unreadable stat line %q", stat)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("unreadable stat line: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHZ, nil
}

// memory is what a process occupies, in bytes.
type memory struct {
	rss int64
	pss int64 // pages shared with other processes count in part
}

func memoryOf(pid int) (memory, error) {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memory{}, err
	}
	return parseMemory(string(rollup))
}

func parseMemory(rollup string) (memory, error) {
	var m memory
	for name, into := range map[string]*int64{"Rss:": &m.rss, "Pss:": &m.pss} {
		kib, err := kibField(rollup, name)
		if err != nil {
			return memory{}, err
		}
		*into = kib << 10
	}
	return m, nil
}

func kibField(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name && fields[2] == "kB" {
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("no field %s", name)
}
