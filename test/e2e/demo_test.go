// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// TestHostDemo runs the demo as the README says, then once more with -hold to compare what it prints with the kernel.
func TestHostDemo(t *testing.T) {
	t.Run("Make", func(t *testing.T) { demoToTheEnd(t, "make", "-C", "../..", "demo") })
	t.Run("Hold", func(t *testing.T) { demoOnHold(t, "../..", "go", "run", "./test/demo", "-hold") })
}

// TestGuestDemo runs it in a VM, which has no Go: cgroup v2 has other files and more rows.
func TestGuestDemo(t *testing.T) { demoOnHold(t, ".", bin("demo"), "-hold") }

// TestGuestSystemdDemo runs it where systemd is PID 1, as on the machine of whoever tries it first.
func TestGuestSystemdDemo(t *testing.T) { demoOnHold(t, ".", bin("demo"), "-hold") }

// back: what BE may use under the load is at most this part of what it may use before and after it.
const back = 0.75

// demoToTheEnd fails unless the demo ends well, shows every part and leaves nothing.
func demoToTheEnd(t *testing.T, name string, args ...string) {
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	text := string(out)
	t.Logf("%s", text)
	if err != nil {
		t.Fatal(err)
	}
	demoParts(t, text)
	demoLoop(t, text)
	if !strings.Contains(text, "\nDone in ") {
		t.Error("the demo does not say that it is done")
	}
	demoIsGone(t, text)
}

// demoParts fails unless every part is printed.
func demoParts(t *testing.T, text string) {
	t.Helper()
	for _, part := range []string{
		"1. Without koord-nri", "2. With koord-nri", "web/app  class LS\n", "job/work  class BE\n", "db/pg  class LSR\n",
		"3. The same in crictl", "koord-rt.dev/applied", "True is info.runtimeSpec", "4. Ask koordctl", "the scheduler's CPUs", "5. What works",
		"6. koordlet: load comes", "load comes: ", "load goes\n", "BE may use  ", "from koordlet's /events: 65% of ", "are gone.",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the demo does not print %q", part)
		}
	}
	// What crictl says in its two places of the BE container: as the kubelet asked, and as it runs.
	if !regexp.MustCompile(`(?m)^ +oom_score_adj +1000 +900$`).MatchString(text) {
		t.Error("the demo does not show status.resources beside info.runtimeSpec")
	}
}

// demoLoop reads the table of the closed loop: under the load BE was allowed clearly less than before and after it.
func demoLoop(t *testing.T, text string) {
	t.Helper()
	var may, used []float64
	for _, when := range []string{"before", "under", "after"} {
		m := regexp.MustCompile(`(?m)^  ` + when + ` the load +[\d.]+-[\d.]+ s +([\d.]+) +[\d.]+ +([\d.]+)$`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("the demo has no figures %s the load", when)
		}
		for i, list := range []*[]float64{&used, &may} {
			n, err := strconv.ParseFloat(m[i+1], 64)
			if err != nil {
				t.Fatal(err)
			}
			*list = append(*list, n)
		}
	}
	t.Logf("BE may use %v CPUs before, under and after the load", may)
	// Pressure on a guest that gets no CPU holds the averages down before the load, too: there yielded decides by the quota itself.
	if !emulated() && (may[1] > back*may[0] || may[1] > back*may[2]) {
		t.Errorf("BE may use %v CPUs before, under and after the load", may)
	}
	if used[1] < 0.4 || used[0] > used[1]/2 || used[2] > used[1]/2 {
		t.Errorf("LS used %v CPUs before, under and after the load", used)
	}
}

// demoQuota is a witness beside the demo: what the quota of the best-effort class was in the kernel, each change of it, in
// CPUs. The class is the demo's own, so it is found as soon as the demo says where it runs.
type demoQuota struct{ seen []float64 }

func (q *demoQuota) look(text string) {
	m := demoDir.FindStringSubmatch(text)
	tree, err := cgroups.Detect()
	if m == nil || err != nil {
		return
	}
	file, mount, period := "cpu.max", tree.Unified, ""
	if !tree.V2() {
		file, mount, period = "cpu.cfs_quota_us", tree.Controllers["cpu"], " 100000"
	}
	got, err := cgroups.Read(filepath.Join(mount, "koordrt-"+filepath.Base(m[1]), "kubepods", "besteffort"), file)
	var quota, every float64
	if n, _ := fmt.Sscanf(got+period, "%g %g", &quota, &every); err != nil || n != 2 || quota <= 0 {
		return // not there yet, or without a quota
	}
	if cpus := quota / every; len(q.seen) == 0 || q.seen[len(q.seen)-1] != cpus {
		q.seen = append(q.seen, cpus)
	}
}

// yielded fails unless the quota fell to less than three quarters and rose again, so that it had been at most back of what came.
func (q *demoQuota) yielded(t *testing.T) {
	t.Helper()
	for i, low := range q.seen {
		if low <= 0.75*slices.Max(append([]float64{0}, q.seen[:i]...)) && low <= back*slices.Max(append([]float64{0}, q.seen[i:]...)) {
			t.Logf("the quota of the best-effort class in the kernel, CPUs: %.2f", q.seen)
			return
		}
	}
	t.Errorf("the quota of the best-effort class in the kernel never fell and rose again: %.2f", q.seen)
}

// demoOnHold compares every row of the demo with the kernel while its pods run, ends it as Ctrl-C does and looks for what
// it left.
func demoOnHold(t *testing.T, dir, name string, args ...string) {
	var out syncBuffer
	ctx, cancel := context.WithTimeout(t.Context(), patience(8*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's interrupt goes to the whole group
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() { // who fails before the end must not leave a koord-nri to the tests after it
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGINT)
		for range ended {
		}
	})
	var quota demoQuota
	for !strings.Contains(out.String(), "until Ctrl-C") {
		select {
		case err := <-ended:
			t.Fatalf("the demo ended before it was told to: %v\n%s", err, out.String())
		case <-time.After(50 * time.Millisecond):
			quota.look(out.String())
		}
	}
	text := out.String()
	demoLoop(t, text)
	quota.yielded(t)
	rows := demoRows(t, text)
	compareDemo(t, demoCgroup(t, text), rows)
	if err := unix.Kill(-cmd.Process.Pid, unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-ended // an interrupted demo ends with 1
	text = out.String()
	t.Logf("%s", text)
	demoParts(t, text)
	if !strings.Contains(text, "Interrupted; cleaning up.") {
		t.Error("the demo does not say that it was interrupted")
	}
	demoIsGone(t, text)
}

// demoDir is the folder of the demo's containerd and, where there is one, its cluster.
var demoDir = regexp.MustCompile(`(?:containerd runs|kube-apiserver [\d.]+ run) in (/tmp/krt\w+)`)

// demoCgroup is the name of the demo's own cgroup.
func demoCgroup(t *testing.T, text string) string {
	t.Helper()
	m := demoDir.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("the demo does not say where its containerd runs: %s", text)
	}
	return "koordrt-" + filepath.Base(m[1])
}

// demoIsGone looks for processes, mounts, cgroups and files of a demo.
func demoIsGone(t *testing.T, text string) {
	t.Helper()
	group := demoCgroup(t, text)
	dir := filepath.Join("/tmp", strings.TrimPrefix(group, "koordrt-"))
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	left := []string{dir}
	for _, m := range tree.Mounts() {
		left = append(left, filepath.Join(m, group))
	}
	for _, class := range []string{"LSR", "LS", "BE", "koordlet-*"} {
		left = append(left, filepath.Join(resctrl, class))
	}
	for _, p := range left {
		if found, err := filepath.Glob(p); err != nil || len(found) > 0 {
			t.Errorf("the demo left %v (%v)", found, err)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(dir)) {
		t.Errorf("the demo left mounts below %s (%v)", dir, err)
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands {
		if line, err := os.ReadFile(c); err == nil && bytes.Contains(line, []byte(dir)) {
			t.Errorf("the demo left a process: %s", bytes.ReplaceAll(line, []byte{0}, []byte(" ")))
		}
	}
}

// demoRow is a line of the demo's tables: container is empty at pod level.
type demoRow struct{ pod, container, file, before, now, why string }

// demoUIDs are the pods' uids, by which their cgroups are found.
var demoUIDs = map[string]string{
	"web": "de300000-0000-4000-8000-000000000001", "job": "de300000-0000-4000-8000-000000000002", "db": "de300000-0000-4000-8000-000000000003",
}

var (
	demoPod     = regexp.MustCompile(`^  (\w+)/(\w+)  class \w+$`)
	demoHead    = regexp.MustCompile(`^ +value +without us +in the kernel now +why$`)
	demoColumns = regexp.MustCompile(`  +`)
)

// demoRows reads the tables of part 2.
func demoRows(t *testing.T, text string) []demoRow {
	t.Helper()
	_, text, _ = strings.Cut(text, "2. With koord-nri")
	text, _, _ = strings.Cut(text, "3. The same in crictl")
	var rows []demoRow
	var pod, name, container string
	value := 0 // where the column of files begins
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := demoPod.FindStringSubmatch(line); m != nil {
			pod, name = m[1], m[2]
			continue
		}
		if demoHead.MatchString(line) {
			value = strings.Index(line, "value")
			continue
		}
		if pod == "" || len(line) <= value || line[value] == ' ' {
			continue // between tables, or the rest of a long reason
		}
		switch strings.TrimSpace(line[:value]) {
		case "container":
			container = name
		case "pod":
			container = ""
		}
		cells := demoColumns.Split(line[value:], 4)
		if len(cells) != 4 {
			t.Fatalf("a row without its four cells: %q", line)
		}
		rows = append(rows, demoRow{pod, container, cells[0], cells[1], cells[2], cells[3]})
	}
	return rows
}

// compareDemo reads every row's value from the kernel, and looks for the rows that each class must have, with what was there before.
func compareDemo(t *testing.T, group string, rows []demoRow) {
	t.Helper()
	have := map[string]string{} // "POD CONTAINER FILE" -> what it was without us
	for _, row := range rows {
		got, err := demoValue(t, group, row)
		if err != nil || !demoSays(row.file, row.now, got) {
			t.Errorf("%s/%s %s: the demo says %q, the kernel %q (%v)", row.pod, row.container, row.file, row.now, got, err)
		}
		if row.before == row.now || row.why == "" {
			t.Errorf("a row that shows or explains nothing: %+v", row)
		}
		have[row.pod+" "+row.container+" "+row.file] = row.before
	}
	for m, before := range demoBefore() {
		if got, ok := have[m]; !ok || got != before {
			t.Errorf("row %q of the demo: %v, without us %q, want %q", m, ok, got, before)
		}
	}
	t.Logf("%d rows are as in the kernel", len(rows))
}

// demoBefore are the rows that there must be, with what the kubelet alone makes of the pods: their limits, none for batch, every CPU.
func demoBefore() map[string]string {
	if cgroupV2() {
		return map[string]string{
			"web app cpu.max.burst": "0", "web app cpuset.cpus": "inherited", "web app memory.low": "0", "web  memory.low": "0",
			"job work cpu.max": "no limit", "job work cpu.weight": "1", "job work memory.max": "no limit", "job work oom_score_adj": "1000",
			"job work scheduling policy": "SCHED_OTHER", "job  cpu.max": "no limit", "job  memory.max": "no limit",
			"db pg cpu.max": "100000 of 100000 us", "db pg cpuset.cpus": "inherited", "db  cpu.max": "100000 of 100000 us", "db pg memory.min": "0",
		}
	}
	return map[string]string{
		"web app cpu.cfs_burst_us": "0", "web app cpuset.cpus": allCPUs(),
		"job work cpu.cfs_quota_us": "no limit", "job work cpu.shares": "2", "job work memory.limit_in_bytes": "no limit",
		"job work oom_score_adj": "1000", "job work scheduling policy": "SCHED_OTHER", "job  cpu.cfs_quota_us": "no limit", "job  memory.limit_in_bytes": "no limit",
		"db pg cpu.cfs_quota_us": "100000", "db pg cpuset.cpus": allCPUs(), "db  cpu.cfs_quota_us": "100000",
	}
}

// demoValue is a row's value, straight from the kernel.
func demoValue(t *testing.T, group string, row demoRow) (string, error) {
	t.Helper()
	tree, err := cgroups.Detect()
	if err != nil {
		return "", err
	}
	controller, _, _ := strings.Cut(row.file, ".")
	process := row.file == "oom_score_adj" || row.file == "scheduling policy"
	if process {
		controller = "cpu"
	}
	mount := tree.Unified
	if !tree.V2() {
		mount = tree.Controllers[controller]
	}
	dirs, err := filepath.Glob(filepath.Join(mount, group, "kubepods", "*", "pod"+demoUIDs[row.pod]))
	guaranteed, gerr := filepath.Glob(filepath.Join(mount, group, "kubepods", "pod"+demoUIDs[row.pod]))
	if dirs = append(dirs, guaranteed...); err != nil || gerr != nil || len(dirs) != 1 {
		return "", fmt.Errorf("cgroups of pod %s: %v (%v)", row.pod, dirs, err)
	}
	if row.container == "" {
		return cgroups.Read(dirs[0], row.file)
	}
	dir, pid, err := demoContainer(group, dirs[0])
	switch {
	case err != nil:
		return "", err
	case !process:
		return cgroups.Read(dir, row.file)
	case row.file == "oom_score_adj":
		return cgroups.Read("/proc/"+strconv.Itoa(pid), row.file)
	}
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil {
		return "", err
	}
	return map[uint32]string{0: "SCHED_OTHER", 5: "SCHED_IDLE"}[attr.Policy], nil
}

// demoContainer is the cgroup of a pod's container: containerd's own bundle tells it from the sandbox.
func demoContainer(group, pod string) (dir string, pid int, err error) {
	all, err := cgroups.Dirs(pod)
	if err != nil {
		return "", 0, err
	}
	for _, d := range all[1:] {
		bundle := filepath.Join("/tmp", strings.TrimPrefix(group, "koordrt-"), "*", "io.containerd.runtime.v2.task", "k8s.io", filepath.Base(d), "config.json")
		found, err := filepath.Glob(bundle)
		if err != nil || len(found) != 1 {
			return "", 0, fmt.Errorf("bundles %s: %v (%v)", bundle, found, err)
		}
		text, err := os.ReadFile(found[0])
		if err != nil {
			return "", 0, err
		}
		if pids := cgroups.Pids(d); len(pids) > 0 && bytes.Contains(text, []byte(`"io.kubernetes.cri.container-type":"container"`)) {
			return d, pids[0], nil
		}
	}
	return "", 0, fmt.Errorf("no container in %s: %v", pod, all)
}

// demoSays compares a cell that is written for people with the kernel's text.
func demoSays(file, cell, kernel string) bool {
	kernel = strings.Join(strings.Fields(kernel), " ")
	n, err := strconv.ParseInt(kernel, 10, 64)
	number, unit, _ := strings.Cut(cell, " ")
	switch {
	case cell == kernel:
		return true
	case file == "io.max":
		return cell == strings.Join(slices.DeleteFunc(strings.Fields(kernel), func(f string) bool { return strings.HasSuffix(f, "=max") }), " ")
	case file == "cpu.max" && strings.HasSuffix(cell, " us"):
		return strings.Replace(strings.TrimSuffix(cell, " us"), " of ", " ", 1) == kernel
	case cell == "no limit":
		return kernel == "max" || strings.HasPrefix(kernel, "max ") || err == nil && (n == -1 || n >= 1<<62)
	case unit == "MiB" || unit == "KiB":
		f, ferr := strconv.ParseFloat(number, 64)
		size := map[string]float64{"MiB": 1 << 20, "KiB": 1 << 10}[unit]
		diff := f*size - float64(n)
		return err == nil && ferr == nil && max(diff, -diff) <= size/20 // one decimal is shown
	}
	return false
}
