// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package kerneltest builds fake kernel filesystems in a test's temporary directory.
//
// New makes a cgroup tree, /proc, /sys with a CPU topology, and on request resctrl, as plain files with the content that
// the named kernel shows. Plain files accept anything, so Tree.Write stands in for the kernel: it has the rules that our
// ordering depends on (burst ≤ quota, cpuset within the parent's, weight and idle, pages, keyed files). Snapshot and Diff
// compare trees. Recorded lays out the accounting files of machines that were recorded, for readers.
//
// For tests of the real kernel, Hierarchies and Unified find this machine's own cgroups, and StepAside and LeaveToVM are how a
// test steps aside where the kernel itself proves that it cannot run. Only tests import it; it imports kernel/root, model,
// golang.org/x/sys, golang.org/x/tools/txtar and the standard library.
package kerneltest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
)

// BootID is every fake machine's boot id.
const BootID = "8f9a1c52-6f0e-4d0a-9f5b-3d1a2b3c4d5e"

// CPUs is the list of the fake machine's CPUs, Mems of its NUMA nodes.
const (
	CPUs = "0-7"
	Mems = "0-1"
)

// Tree is one fake machine.
type Tree struct {
	Roots   root.Roots
	Version node.CgroupVersion
	// Page is the size of the kernel's pages, 4096 before a test makes it another.
	Page int64

	mu    sync.Mutex
	files map[string]string // per cgroup directory, below the controller
	least string            // the weight that an idle cgroup shows
	log   []string
}

// kernels maps the names of New to a release and what else they have.
var kernels = map[string]struct {
	release string
	version node.CgroupVersion
	idle    string // sched_weight_to_cgroup of Linux 6.12 shows nothing below the least weight
	anolis  bool
}{
	"6.1":       {"6.1.0-40-amd64", node.CgroupV2, "0", false},
	"6.12":      {"6.12.48+deb13-amd64", node.CgroupV2, "1", false},
	"7.2":       {"7.2.0", node.CgroupV2, "1", false},
	"v1":        {"6.1.0-40-amd64", node.CgroupV1, "3", false},
	"anolis":    {"5.10.134-16.an8.x86_64", node.CgroupV1, "3", true},
	"anolis-v2": {"5.10.134-16.an8.x86_64", node.CgroupV2, "0", true},
}

// New builds a machine with the kernel "6.1", "6.12", "7.2" (cgroup v2), "v1" (mainline, cgroup v1), "anolis" or
// "anolis-v2", and the given cgroups with all of their ancestors.
func New(t testing.TB, kernel string, cgroups ...string) *Tree {
	t.Helper()
	k, ok := kernels[kernel]
	if !ok {
		t.Fatalf("kerneltest: no kernel %q", kernel)
	}
	dir := t.TempDir()
	tree := &Tree{Version: k.version, Page: 4096, least: k.idle, Roots: root.Roots{
		Cgroup: dir + "/sys/fs/cgroup", Proc: dir + "/proc", Sys: dir + "/sys", Resctrl: dir + "/sys/fs/resctrl", Dev: dir + "/dev",
	}}
	tree.files = v1Files(k.anolis)
	if k.version == node.CgroupV2 {
		tree.files = v2Files(k.anolis)
	}
	for _, d := range []string{tree.Roots.Cgroup, tree.Roots.Resctrl, tree.Roots.Dev} {
		must(t, os.MkdirAll(d, 0o755))
	}
	tree.proc(t, k.release)
	tree.topology(t)
	tree.rootFiles(t)
	for _, c := range cgroups {
		tree.Mkdir(t, c)
	}
	return tree
}

func (tr *Tree) proc(t testing.TB, release string) {
	for name, content := range map[string]string{
		"sys/kernel/random/boot_id": BootID + "\n",
		"sys/kernel/osrelease":      release + "\n",
		"meminfo":                   "MemTotal:       16384000 kB\nMemFree:        15000000 kB\n",
	} {
		tr.put(t, tr.Roots.Proc+"/"+name, content)
	}
}

// rootFiles makes the root cgroup: a few files of the root exist only there or only on v1.
func (tr *Tree) rootFiles(t testing.TB) {
	if tr.Version == node.CgroupV2 {
		tr.put(t, tr.Roots.Cgroup+"/cgroup.controllers", "cpuset cpu io memory pids\n")
		tr.put(t, tr.Roots.Cgroup+"/cgroup.procs", "1\n")
		tr.put(t, tr.Roots.Cgroup+"/io.cost.qos", "")
		tr.put(t, tr.Roots.Cgroup+"/io.cost.model", "")
		tr.put(t, tr.Roots.Cgroup+"/cpuset.cpus.effective", CPUs+"\n")
		tr.put(t, tr.Roots.Cgroup+"/cpuset.mems.effective", Mems+"\n")
		return
	}
	tr.create(t, "")
	tr.put(t, tr.Roots.Cgroup+"/cpuset/cpuset.cpus", CPUs+"\n")
	tr.put(t, tr.Roots.Cgroup+"/cpuset/cpuset.mems", Mems+"\n")
	if _, anolis := tr.files["blkio/blkio.cost.weight"]; anolis {
		tr.put(t, tr.Roots.Cgroup+"/blkio/blkio.cost.qos", "")
		tr.put(t, tr.Roots.Cgroup+"/blkio/blkio.cost.model", "")
	}
}

// Mkdir makes a cgroup, and its ancestors where they are missing, with the kernel's defaults. A v1 cpuset starts with its
// parent's lists, as kubelet and runc see to it.
func (tr *Tree) Mkdir(t testing.TB, cgroup string) {
	t.Helper()
	path := ""
	for part := range strings.SplitSeq(strings.Trim(cgroup, "/"), "/") {
		path += "/" + part
		if tr.Exists(path) {
			continue
		}
		tr.create(t, path)
	}
}

// Exists reports whether the cgroup is there.
func (tr *Tree) Exists(cgroup string) bool {
	_, err := os.Stat(tr.Path(cgroup, "cgroup.procs"))
	return err == nil
}

func (tr *Tree) create(t testing.TB, cgroup string) {
	for name, content := range tr.files {
		controller, file, _ := strings.Cut(name, "/")
		if tr.Version == node.CgroupV2 {
			controller, file = "", name
		}
		dir := filepath.Join(tr.Roots.Cgroup, controller, cgroup)
		if controller == "cpuset" && (file == "cpuset.cpus" || file == "cpuset.mems") && cgroup != "" {
			content = tr.read(filepath.Dir(dir)+"/"+file) + "\n"
		}
		tr.put(t, dir+"/"+file, content)
	}
}

// Rmdir removes a cgroup with everything below it.
func (tr *Tree) Rmdir(t testing.TB, cgroup string) {
	t.Helper()
	for _, c := range tr.controllers() {
		must(t, os.RemoveAll(filepath.Join(tr.Roots.Cgroup, c, cgroup)))
	}
}

func (tr *Tree) controllers() []string {
	if tr.Version == node.CgroupV2 {
		return []string{""}
	}
	return []string{"cpu", "cpuset", "memory", "blkio"}
}

// Path is a file of a cgroup; the v1 controller follows from the file's name.
func (tr *Tree) Path(cgroup, file string) string {
	if tr.Version == node.CgroupV2 {
		return filepath.Join(tr.Roots.Cgroup, cgroup, file)
	}
	controller, _, _ := strings.Cut(file, ".")
	if controller == "cgroup" {
		controller = "cpu"
	}
	return filepath.Join(tr.Roots.Cgroup, controller, cgroup, file)
}

// Get is a file's content without the newline at its end.
func (tr *Tree) Get(t testing.TB, cgroup, file string) string {
	t.Helper()
	b, err := os.ReadFile(tr.Path(cgroup, file))
	must(t, err)
	return strings.TrimRight(string(b), "\n")
}

// Set replaces a file behind the kernel's rules, for what the test's kernel or a foreign writer has done.
func (tr *Tree) Set(t testing.TB, cgroup, file, content string) {
	t.Helper()
	tr.put(t, tr.Path(cgroup, file), content+"\n")
}

// SetProcs puts processes into a cgroup, in every controller.
func (tr *Tree) SetProcs(t testing.TB, cgroup string, pids ...int) {
	t.Helper()
	var b strings.Builder
	for _, pid := range pids {
		b.WriteString(strconv.Itoa(pid) + "\n")
	}
	for _, c := range tr.controllers() {
		tr.put(t, filepath.Join(tr.Roots.Cgroup, c, cgroup, "cgroup.procs"), b.String())
	}
}

// Snapshot is the content of every file below the cgroup root and resctrl, by path below Roots.Sys.
func (tr *Tree) Snapshot(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range []string{tr.Roots.Cgroup, tr.Roots.Resctrl} {
		must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(p)
			out[strings.TrimPrefix(p, tr.Roots.Sys)] = string(b)
			return err
		}))
	}
	return out
}

// Diff lists what differs between two snapshots, one line a file, sorted; "" when nothing does.
func Diff(before, after map[string]string) string {
	var lines []string
	for p, b := range before {
		if a, ok := after[p]; !ok {
			lines = append(lines, fmt.Sprintf("- %s: %q", p, b))
		} else if a != b {
			lines = append(lines, fmt.Sprintf("  %s: %q → %q", p, b, a))
		}
	}
	for p, a := range after {
		if _, ok := before[p]; !ok {
			lines = append(lines, fmt.Sprintf("+ %s: %q", p, a))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Log is every write that reached Write, "path=value" below the cgroup root or resctrl, failed ones with their errno. It
// is emptied.
func (tr *Tree) Log() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	log := tr.log
	tr.log = nil
	return log
}

func (tr *Tree) put(t testing.TB, path, content string) {
	t.Helper()
	err := os.WriteFile(path, []byte(content), 0o644) //nolint:gosec // a test's own directory
	if errors.Is(err, fs.ErrNotExist) {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		err = os.WriteFile(path, []byte(content), 0o644) //nolint:gosec // a test's own directory
	}
	must(t, err)
}

// read is a file without its newline, "" when it is missing.
func (tr *Tree) read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(b), "\n")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
