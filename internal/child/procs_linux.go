package child

import (
	"bytes"
	"os"
	"strconv"
)

// process is one process, as /proc tells of it.
type process struct {
	pid, parent, group int
	dead               bool   // a zombie, or nearly
	started            string // with the pid, it names one process for ever
}

// processes lists all that /proc shows; ok is false if there is no /proc, or
// only that of another process namespace, where our numbers are others'.
func processes() (all []process, ok bool) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil, false
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, false
	}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all, len(all) > 0
}

// readProcess reads /proc/PID/stat; see proc_pid_stat(5).
func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The name may have spaces and parentheses in it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return process{}, false
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(string(fields[i]))
		return n
	}
	p := process{pid: pid, parent: number(1), group: number(2), started: string(fields[19])}
	// A first thread that has ended before others is shown as a zombie too.
	p.dead = (fields[0][0] == 'Z' || fields[0][0] == 'X') && number(17) <= 1
	return p, true
}

// descendants picks those that descend from root.
func descendants(all []process, root int) []process {
	children := make(map[int][]process)
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	var found []process
	seen := map[int]bool{root: true} // what is read piecemeal may hold a circle
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, p := range children[queue[0]] {
			if !seen[p.pid] {
				seen[p.pid] = true
				found = append(found, p)
				queue = append(queue, p.pid)
			}
		}
	}
	return found
}
