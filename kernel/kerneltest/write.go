// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kerneltest

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
)

// Write does to the fake tree what the kernel does on write(2): checks, rounds, merges, and stores what a read then shows.
// Files without a rule of their own store the text. It has the signature of apply's Writer.
func (tr *Tree) Write(path, value string, _ bool) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	short := strings.TrimPrefix(strings.TrimPrefix(path, tr.Roots.Cgroup), tr.Roots.Resctrl)
	entry := short + "=" + strings.TrimSpace(value)
	err := tr.apply(path, strings.TrimSpace(value))
	if err != nil {
		entry += " " + err.Error()
		err = &root.FileError{Op: "write", Path: path, Value: value, Err: err}
	}
	tr.log = append(tr.log, entry)
	return err
}

func (tr *Tree) apply(path, value string) error {
	if _, err := os.Stat(path); err != nil {
		return unix.ENOENT
	}
	dir, file := filepath.Dir(path), filepath.Base(path)
	out, err := tr.rule(file)(path, dir, value)
	if err != nil {
		return err
	}
	if out != "" || !isKeyed(file) {
		out += "\n"
	}
	if err := os.WriteFile(path, []byte(out), 0o644); err != nil { //nolint:gosec // a test's own directory
		return err
	}
	if tr.Version == node.CgroupV2 && (file == "cpuset.cpus" || file == "cpuset.mems") {
		return tr.effective(dir, file)
	}
	return nil
}

// rule is the kernel's write handler of a file: from what is written to what a read then shows.
func (tr *Tree) rule(file string) func(path, dir, value string) (string, error) {
	checked := func(check func(dir, value string) error) func(path, dir, value string) (string, error) {
		return func(_, dir, value string) (string, error) { return value, check(dir, value) }
	}
	switch file {
	case "cpu.max":
		return func(_, dir, value string) (string, error) { return tr.cpuMax(dir, value) }
	case "cpu.cfs_quota_us":
		return checked(tr.checkQuota)
	case "cpu.cfs_period_us":
		return checked(tr.checkPeriod)
	case "cpu.max.burst", "cpu.cfs_burst_us":
		return checked(tr.checkBurst)
	case "cpu.weight", "cpu.shares":
		return checked(func(dir, value string) error { return tr.checkWeight(dir, file, value) })
	case "cpu.idle":
		return checked(tr.idle)
	case "cpuset.cpus", "cpuset.mems":
		return func(_, dir, value string) (string, error) { return tr.list(dir, file, value) }
	case "memory.limit_in_bytes", "memory.memsw.limit_in_bytes":
		return func(_, dir, value string) (string, error) { return tr.limit1(dir, file, value) }
	case "memory.max", "memory.high", "memory.min", "memory.low":
		return func(_, _, value string) (string, error) { return tr.bytesOrMax(value) }
	case "schemata":
		return func(path, _, value string) (string, error) { return mergeSchemata(tr.read(path), value) }
	}
	if strings.Contains(file, ".cost.qos") || strings.Contains(file, ".cost.model") {
		return func(path, _, value string) (string, error) { return cost(tr.read(path), file, value) }
	}
	if isKeyed(file) {
		return func(path, _, value string) (string, error) { return keyed(tr.read(path), file, value) }
	}
	return checked(func(string, string) error { return nil })
}

// isKeyed reports files with a line per device; they are empty, not an empty line, without any.
func isKeyed(file string) bool {
	return strings.HasPrefix(file, "io.") || strings.HasPrefix(file, "blkio.")
}

// number reads an integer; "max" and v1's largest are -1.
func number(s string) (int64, error) {
	if s = strings.TrimSpace(s); s == "max" {
		return -1, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, unix.EINVAL
	}
	if n >= 0x7FFFFFFFFFFF0000 { // with pages of 64 KiB
		return -1, nil
	}
	return n, nil
}

func (tr *Tree) cpuMax(dir, value string) (string, error) {
	quota, period, _ := strings.Cut(value, " ")
	if period == "" {
		_, period, _ = strings.Cut(tr.read(dir+"/cpu.max"), " ")
	}
	q, err := number(quota)
	p, perr := number(period)
	burst, _ := number(tr.read(dir + "/cpu.max.burst"))
	if err != nil || perr != nil || p < 1000 || p > 1000000 || q != -1 && (q < 1000 || q < burst) {
		return "", unix.EINVAL
	}
	return quota + " " + period, nil
}

// checkQuota is tg_set_cfs_bandwidth with v1's rule that no child has more than its parent.
func (tr *Tree) checkQuota(dir, value string) error {
	q, err := number(value)
	burst, _ := number(tr.read(dir + "/cpu.cfs_burst_us"))
	if err != nil || q != -1 && (q < 1000 || q < burst) {
		return unix.EINVAL
	}
	return tr.fits(dir, value, tr.read(dir+"/cpu.cfs_period_us"))
}

// checkPeriod is the same for the other file.
func (tr *Tree) checkPeriod(dir, value string) error {
	if p, err := number(value); err != nil || p < 1000 || p > 1000000 {
		return unix.EINVAL
	}
	return tr.fits(dir, tr.read(dir+"/cpu.cfs_quota_us"), value)
}

func (tr *Tree) fits(dir, quota, period string) error {
	mine := ratio(quota, period)
	for up := filepath.Dir(dir); strings.HasPrefix(up, tr.Roots.Cgroup+"/cpu/"); up = filepath.Dir(up) {
		outer := tr.ratioOf(up)
		if mine >= 0 && outer >= 0 && mine > outer {
			return unix.EINVAL
		}
	}
	return tr.each(dir, func(child string) error {
		inner := tr.ratioOf(child)
		if mine >= 0 && inner > mine {
			return unix.EINVAL
		}
		return nil
	})
}

func (tr *Tree) ratioOf(dir string) int64 {
	return ratio(tr.read(dir+"/cpu.cfs_quota_us"), tr.read(dir+"/cpu.cfs_period_us"))
}

// ratio is the quota in thousandths of a CPU, -1 for none.
func ratio(quota, period string) int64 {
	q, err := number(quota)
	p, perr := number(period)
	if err != nil || perr != nil || q < 0 || p <= 0 {
		return -1
	}
	return q * 1000 / p
}

// each visits the direct children.
func (tr *Tree) each(dir string, visit func(child string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := visit(dir + "/" + e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (tr *Tree) checkBurst(dir, value string) error {
	quota, _, _ := strings.Cut(tr.read(dir+"/cpu.max"), " ")
	if tr.Version == node.CgroupV1 {
		quota = tr.read(dir + "/cpu.cfs_quota_us")
	}
	q, _ := number(quota)
	b, err := strconv.ParseUint(value, 10, 62)
	if err != nil || q != -1 && int64(b) > q {
		return unix.EINVAL
	}
	return nil
}

func (tr *Tree) checkWeight(dir, file, value string) error {
	n, err := number(value)
	if err != nil || tr.read(dir+"/cpu.idle") == "1" {
		return unix.EINVAL
	}
	if file == "cpu.weight" && (n < 1 || n > 10000) {
		return unix.ERANGE
	}
	return nil
}

// idle makes the weight unreadable while it is set and the default when it is cleared.
func (tr *Tree) idle(dir, value string) error {
	file, normal := "cpu.weight", "100"
	if tr.Version == node.CgroupV1 {
		file, normal = "cpu.shares", "1024"
	}
	switch value {
	case tr.read(dir + "/cpu.idle"):
		return nil
	case "1":
		return os.WriteFile(dir+"/"+file, []byte(tr.least+"\n"), 0o644) //nolint:gosec // a test's own directory
	case "0":
		return os.WriteFile(dir+"/"+file, []byte(normal+"\n"), 0o644) //nolint:gosec // a test's own directory
	}
	return unix.EINVAL
}

// list is v1's validate_change: within the parent's, and never without what a child has.
func (tr *Tree) list(dir, file, value string) (string, error) {
	want, err := topo.ParseCPUSet(value)
	all, _ := topo.ParseCPUSet(CPUs)
	if err != nil || !want.SubsetOf(all) {
		return "", unix.EINVAL
	}
	if tr.Version == node.CgroupV2 {
		if want.Empty() && strings.TrimSpace(tr.read(dir+"/"+file)) != "" && tr.read(dir+"/cgroup.procs") != "" {
			return "", unix.ENOSPC
		}
		return want.String(), nil
	}
	if outer, _ := topo.ParseCPUSet(tr.read(filepath.Dir(dir) + "/" + file)); !want.SubsetOf(outer) {
		return "", unix.EACCES
	}
	if want.Empty() && tr.read(dir+"/cgroup.procs") != "" {
		return "", unix.ENOSPC
	}
	return want.String(), tr.each(dir, func(child string) error {
		if inner, _ := topo.ParseCPUSet(tr.read(child + "/" + file)); !inner.SubsetOf(want) {
			return unix.EBUSY
		}
		return nil
	})
}

// effective is update_cpumasks_hier: what is asked for within the parent's effective list, or that list whole where nothing
// of it is left.
func (tr *Tree) effective(dir, file string) error {
	outer, _ := topo.ParseCPUSet(tr.read(filepath.Dir(dir) + "/" + file + ".effective"))
	own, _ := topo.ParseCPUSet(tr.read(dir + "/" + file))
	if own = own.Intersect(outer); own.Empty() {
		own = outer
	}
	if err := os.WriteFile(dir+"/"+file+".effective", []byte(own.String()+"\n"), 0o644); err != nil { //nolint:gosec // a test's own directory
		return err
	}
	return tr.each(dir, func(child string) error {
		if _, err := os.Stat(child + "/" + file); err != nil {
			return nil // resctrl or another tree that is no cgroup
		}
		return tr.effective(child, file)
	})
}

func (tr *Tree) bytesOrMax(value string) (string, error) {
	n, err := number(value)
	switch {
	case err != nil || n < -1 || value == "-1":
		return "", unix.EINVAL
	case n == -1:
		return "max", nil
	}
	return tr.pages(n), nil
}

// limit1 is a v1 memory limit: memory with swap is never below memory alone.
func (tr *Tree) limit1(dir, file, value string) (string, error) {
	n, err := number(value)
	if err != nil || n < -1 {
		return "", unix.EINVAL
	}
	both, _ := number(tr.read(dir + "/memory.memsw.limit_in_bytes"))
	alone, _ := number(tr.read(dir + "/memory.limit_in_bytes"))
	above := func(a, b int64) bool { return b != -1 && (a == -1 || a > b) }
	if file == "memory.limit_in_bytes" && above(n, both) || file == "memory.memsw.limit_in_bytes" && above(alone, n) {
		return "", unix.EINVAL
	}
	if n == -1 {
		n = math.MaxInt64
	}
	return tr.pages(n), nil
}

// pages is what whole pages hold of an amount.
func (tr *Tree) pages(n int64) string { return strconv.FormatInt(n/tr.Page*tr.Page, 10) }

var errKeyed = errors.New("keyed file without device")

// keyed merges one line per device.
func keyed(old, file, value string) (string, error) {
	device, rest, ok := strings.Cut(value, " ")
	if !ok {
		return "", errKeyed
	}
	lines := map[string]string{}
	for line := range strings.SplitSeq(old, "\n") {
		if d, r, ok := strings.Cut(line, " "); ok {
			lines[d] = r
		}
	}
	switch {
	case file == "io.max":
		lines[device] = mergeMax(lines[device], rest)
	default:
		lines[device] = rest
	}
	switch lines[device] {
	case "rbps=max wbps=max riops=max wiops=max", "target=0", "0", "default":
		delete(lines, device)
	}
	var out []string
	for d, r := range lines {
		out = append(out, d+" "+r)
	}
	slices.Sort(out)
	if i := slices.IndexFunc(out, func(l string) bool { return strings.HasPrefix(l, "default ") }); i > 0 {
		out = slices.Insert(slices.Delete(out, i, i+1), 0, "default "+lines["default"])
	}
	return strings.Join(out, "\n"), nil
}

func mergeMax(old, change string) string {
	names := []string{"rbps", "wbps", "riops", "wiops"}
	values := map[string]string{"rbps": "max", "wbps": "max", "riops": "max", "wiops": "max"}
	for word := range strings.FieldsSeq(old + " " + change) {
		if name, v, ok := strings.Cut(word, "="); ok {
			values[name] = v
		}
	}
	var out []string
	for _, n := range names {
		out = append(out, n+"="+values[n])
	}
	return strings.Join(out, " ")
}

// mergeSchemata changes the named caches of one resource.
func mergeSchemata(old, value string) (string, error) {
	resource, body, ok := strings.Cut(value, ":")
	if !ok {
		return "", unix.EINVAL
	}
	lines := strings.Split(old, "\n")
	for i, line := range lines {
		name, have, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != resource {
			continue
		}
		domains := strings.Split(have, ";")
		for change := range strings.SplitSeq(body, ";") {
			id, _, _ := strings.Cut(change, "=")
			at := slices.IndexFunc(domains, func(d string) bool { return strings.HasPrefix(d, id+"=") })
			if at < 0 {
				return "", unix.EINVAL
			}
			domains[at] = change
		}
		pad := line[:len(line)-len(strings.TrimLeft(line, " "))]
		lines[i] = pad + resource + ":" + strings.Join(domains, ";")
		return strings.Join(lines, "\n"), nil
	}
	return "", unix.EINVAL
}
