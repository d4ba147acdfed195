// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/koord-rt/koord-rt/kernel/scan"
)

// RTGroups reports whether this kernel shares out real time by cgroup (CONFIG_RT_GROUP_SCHED). With cgroup v2 such a kernel has no file that
// says so, and refuses to switch the cpu controller on in a cgroup beside a process in real time (Documentation/admin-guide/cgroup-v2.rst,
// "CPU"). It is found by functions that no other kernel has; an error where the kernel does not show its functions.
func (fs FS) RTGroups() (bool, error) {
	path := fs.Path("kallsyms")
	f, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	defer f.Close()
	has, err := parseKallsyms(f)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return has, nil
}

// parseKallsyms looks for a function that only RT group scheduling has (kernel/sched/rt.c, and kernel/sched/core.c for its files) in lines like
//
//	ffffffff813c4280 T sched_rt_can_attach
//	ffffffffc0a2b000 t nft_do_chain	[nf_tables]
//
// (Documentation/admin-guide/sysctl/kernel.rst, kptr_restrict: to whom it hides addresses they are zeros, and names stay). A table without the
// scheduler itself tells nothing, and is an error.
func parseKallsyms(r io.Reader) (bool, error) {
	scheduler := false
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull): // no name is that long
		case err != nil && !errors.Is(err, io.EOF):
			return false, err
		}
		_, rest := scan.Field(bytes.TrimSuffix(line, []byte("\n")))
		_, rest = scan.Field(rest)
		name, _ := scan.Field(rest)
		switch string(name) {
		case "sched_rt_can_attach", "cpu_rt_runtime_write":
			return true, nil
		case "schedule":
			scheduler = true
		}
		if errors.Is(err, io.EOF) {
			break
		}
	}
	if !scheduler {
		return false, scan.ErrFormat
	}
	return false, nil
}
