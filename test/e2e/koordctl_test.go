// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"encoding/json"
	"errors"
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

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/child"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// lifecycleKoordctl asks the questions that a person would ask, on running pods.
func lifecycleKoordctl(r *rig) {
	last, rest := cpus()
	r.up(standard, nil)
	ls := r.pod(lsPod("ctl-ls"))
	made := time.Now()
	be := r.pod(bePod("ctl-be"))
	owned := time.Now()
	r.pod(lsrPod("ctl-lsr"))
	r.soon(5*time.Second, ls, wants("LS", rest))
	r.soon(5*time.Second, be, wants("BE", rest))
	r.dated(be, "cpu.quota", made, time.Now())
	r.dated(be, "cpuset.cpus", owned, time.Now()) // which it has left to the exclusive pod since

	for subject, parts := range map[string][]string{
		"default/ctl-be":           {"cpu.quota", "batch", "batch-cpu limit", "oom_score_adj", "oom-score", "sched.policy", "cpu-identity", "class BE", "memory.limit"},
		"default/ctl-ls/main":      {"cpu.burst", "cpu-burst", "100% of limit", "cpuset.cpus", rest, "no pod owns"},
		"default/ctl-lsr":          {"cpuset.cpus", "the scheduler's CPUs", last, "cpu.quota", "owns its CPUs"},
		be.Containers["main"][:13]: {"cpu.quota", "50000"},
	} {
		r.says([]string{"explain", subject}, parts...)
	}
	r.says([]string{"diff"}, "0 of ")
	r.says([]string{"features"}, "batch", "active", "cpuset", "containerd", "NRI")

	// A hand on the kernel is seen at once, and undone by the check for drift, which is held up until both have answered.
	held := r.held()
	wrote := time.Now()
	file := map[bool]string{false: "cpu.cfs_quota_us", true: "cpu.max"}[r.tree.V2()]
	if err := cgroups.Write(r.kube.ContainerDir(be, "main", "cpu"), file, "40000"); err != nil {
		r.t.Fatal(err)
	}
	r.drifted("default/ctl-be")
	r.frozen("default/ctl-be")
	if out, err := r.ctl("diff", "--exit-code"); err == nil || !strings.Contains(out, "default/ctl-be/main") || !strings.Contains(out, "40000") {
		r.t.Errorf("diff --exit-code after a change by hand: %v\n%s", err, out)
	}
	held()
	r.soon(30*time.Second, be, wants("BE", rest))
	if last := r.dated(be, "cpu.quota", wrote, time.Now()); last == nil || last.When.Before(wrote) || last.Found != "40000" {
		r.t.Errorf("explain does not say that 40000 was found after %s: %+v", wrote, last)
	}
	r.says([]string{"diff", "--exit-code"}, "0 of ")
	if r.metric("koord_rt_nri_proof_total", `result="drift"`) == 0 {
		r.t.Error("the drift was repaired and not counted")
	}
	r.doctor()
}

// says fails unless koordctl succeeds and its output has every part.
func (r *rig) says(args []string, parts ...string) {
	r.t.Helper()
	r.eventually(8*time.Second, func() error {
		out, err := r.ctl(args...)
		if err != nil {
			return fmt.Errorf("koordctl %s: %w: %s", strings.Join(args, " "), err, out)
		}
		for _, p := range parts {
			if !strings.Contains(out, p) {
				return fmt.Errorf("koordctl %s does not say %q:\n%s", strings.Join(args, " "), p, out)
			}
		}
		return nil
	})
}

// lastDrift is what explain says of somebody else's write.
type lastDrift struct {
	When  time.Time
	Found string
}

// dated fails unless explain says that a container's knob got its value between two moments, for people as for programs. It returns the last
// drift of the knob, nil for none.
func (r *rig) dated(run *kubelet.Running, knob string, from, to time.Time) (last *lastDrift) {
	r.t.Helper()
	subject := "default/" + run.Pod.Name + "/main"
	r.eventually(8*time.Second, func() error {
		out, err := r.ctl("explain", subject, "-o", "json")
		if err != nil {
			return fmt.Errorf("explain %s: %w: %s", subject, err, out)
		}
		var e struct {
			Settings []struct {
				Level, Knob string
				When        time.Time
				LastDrift   *lastDrift
			}
		}
		if err := json.NewDecoder(strings.NewReader(out)).Decode(&e); err != nil {
			return fmt.Errorf("explain %s: %w: %s", subject, err, out)
		}
		for _, s := range e.Settings {
			if s.Level != "container" || s.Knob != knob {
				continue
			}
			if s.When.Before(from) || s.When.After(to) {
				return fmt.Errorf("explain dates %s of %s %s, want %s to %s", knob, subject, s.When, from, to)
			}
			text, err := r.ctl("explain", subject)
			date := s.When.UTC().Format(time.RFC3339)
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, knob+" ") && strings.Contains(line, " "+date+" ") {
					last = s.LastDrift
					return nil
				}
			}
			return fmt.Errorf("explain does not date %s of %s %s (%v):\n%s", knob, subject, date, err, text)
		}
		return fmt.Errorf("explain says nothing of %s of %s:\n%s", knob, subject, out)
	})
	return last
}

// frozen asks about koord-nri while its process stands still, which the runtime has noticed or not. Every answer comes, says
// what is wrong and what to do, and is a failure.
func (r *rig) frozen(subject string) {
	r.t.Helper()
	doctor := []string{"doctor", "--containerd-config", r.host.Config, "--nri-socket", r.host.NRISocket}
	pid := r.plugin.Process.Pid
	parts := []string{"koord-nri", "(pid " + strconv.Itoa(pid) + ")", "is stopped by a signal", "new containers come up without", "kill -CONT " + strconv.Itoa(pid)}
	for _, args := range [][]string{doctor, {"features"}, {"explain", subject}, {"explain", subject, "-o", "json"}} {
		ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
		out, err := exec.CommandContext(ctx, bin("koordctl"), append([]string{"--run-dir", r.run}, args...)...).CombinedOutput()
		late := ctx.Err()
		cancel()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			r.t.Errorf("koordctl %s beside a stopped koord-nri: %v (%v), want exit code 1\n%s", args[0], err, late, out)
		}
		for _, p := range parts {
			if !strings.Contains(string(out), p) {
				r.t.Errorf("koordctl %s does not say %q of a stopped koord-nri:\n%s", args[0], p, out)
			}
		}
	}
}

// drifted fails unless explain, beside a program of ours that stands still, shows exactly the quota as changed.
func (r *rig) drifted(subject string) {
	r.t.Helper()
	out, _ := r.ctl("explain", subject, "-o", "json") // its exit code says that the program stands still
	var e struct {
		Settings []struct{ Level, Knob, Kernel, Want, Drift string }
	}
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&e); err != nil {
		r.t.Fatalf("explain: %v: %s", err, out)
	}
	found := 0
	for _, s := range e.Settings {
		if s.Drift == "yes" {
			found++
			if s.Level != "container" || s.Knob != "cpu.quota" || s.Kernel != "40000" || s.Want != "50000" {
				r.t.Errorf("explain shows another drift: %+v", s)
			}
		}
	}
	if found != 1 {
		r.t.Errorf("explain shows %d changed values, want the quota:\n%s", found, out)
	}
}

// doctor fails unless its lines are what is known of this rig.
func (r *rig) doctor() {
	r.t.Helper()
	r.besideUs("no other at " + r.host.NRISocket)
	s, err := stub.New(bystander{}, stub.WithPluginName("bystander"), stub.WithPluginIdx("90"), stub.WithSocketPath(r.host.NRISocket))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := s.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Stop) // where the test ends before its own
	r.besideUs("1 beside koord-nri at " + r.host.NRISocket)
	s.Stop()
	r.besideUs("no other at " + r.host.NRISocket)
	r.diagnosed("koord-nri", func() { r.stop(syscall.SIGKILL) })
}

// bystander is a plugin with a name that nobody has heard of.
type bystander struct{}

// StopPodSandbox is there because a plugin without an event is none.
func (bystander) StopPodSandbox(context.Context, *api.PodSandbox) error { return nil }

// besideUs waits until doctor says that of who is connected beside koord-nri.
func (r *rig) besideUs(want string) {
	r.t.Helper()
	r.eventually(5*time.Second, func() error {
		for _, l := range r.checks() {
			if l.Check == "nri-connections" && l.Detail == want {
				return nil
			}
		}
		return fmt.Errorf("doctor does not say of the connections: %s", want)
	})
}

// diagnosed asks doctor about a rig that is well, and about one whose daemon has been killed.
func (r *rig) diagnosed(program string, kill func()) {
	r.t.Helper()
	others, known, machine := r.processes("koord-nri"), false, r.ofMachine()
	for _, l := range r.checks() {
		r.t.Logf("doctor: %-5s %-24s %s", l.Result, l.Check, l.Detail)
		// Several labs may run on one machine: doctor must see exactly that.
		if wrong := l.Result == "FAIL"; wrong != (l.Check == "other-agents" && others > 1) {
			r.t.Errorf("%d koord-nri run here; doctor says %s of %s: %s", others, l.Result, l.Check, l.Detail)
		}
		if l.Result != "ok" && l.Next == "" {
			r.t.Errorf("doctor does not say what to do about %s: %s", l.Check, l.Detail)
		}
		if want, ok := machine[l.Check]; ok && l.Result == want.Result && l.Detail == want.Detail {
			delete(machine, l.Check)
		}
		known = known || l.Result == "ok" && strings.HasPrefix(l.Detail, program+" ") && strings.Contains(l.Detail, "connected since")
	}
	if !known {
		r.t.Errorf("doctor does not find %s connected", program)
	}
	for check, want := range machine {
		r.t.Errorf("doctor does not say of %s here: %s, %s", check, want.Result, want.Detail)
	}
	beside := r.beside()
	for _, l := range r.checks() {
		if want, ok := beside[l.Check]; ok && strings.Contains(l.Detail, want) {
			delete(beside, l.Check)
		}
	}
	for check, want := range beside {
		r.t.Errorf("doctor's %s does not name %s", check, want)
	}
	kill()
	r.eventually(5*time.Second, func() error {
		for _, l := range r.checks() {
			if l.Result == "FAIL" && strings.Contains(l.Check+l.Detail, program) && l.Next != "" {
				return nil
			}
		}
		return fmt.Errorf("doctor does not see that %s was killed (%s)", program, filepath.Base(r.run))
	})
}

// doctorLine is one of doctor's checks.
type doctorLine struct{ Check, Result, Detail, Next string }

// checks are doctor's of this rig; it ends with an error where one fails.
func (r *rig) checks() (lines []doctorLine) {
	r.t.Helper()
	out, err := r.ctl("doctor", "-o", "json", "--containerd-config", r.host.Config, "--nri-socket", r.host.NRISocket)
	if err := json.Unmarshal([]byte(out), &lines); err != nil {
		r.t.Fatalf("doctor: %v\n%s", err, out)
	}
	if failed := slices.ContainsFunc(lines, func(l doctorLine) bool { return l.Result == "FAIL" }); failed != (err != nil) {
		r.t.Errorf("a check fails: %t; doctor ends with %v\n%s", failed, err, out)
	}
	return lines
}

// ofMachine is what doctor has to say of this machine's cgroups, with pods in them, and of its caches.
func (r *rig) ofMachine() map[string]doctorLine {
	r.t.Helper()
	mode, driver := r.version, "cgroupfs"
	if r.tree.Hybrid == cgroupMount+"/unified" {
		mode = "hybrid (controllers are v1)"
	}
	if r.driver == kubelet.Systemd {
		driver = "systemd"
	}
	cache := doctorLine{Result: "ok", Detail: "mounted"}
	if _, err := os.Stat(resctrl + "/schemata"); err != nil {
		cpus, err := os.ReadFile("/proc/cpuinfo")
		if err != nil {
			r.t.Fatal(err)
		}
		cache.Detail = "not mounted; the CPU has neither allocation nor monitoring"
		if can := regexp.MustCompile(`\b(cat_l3|mba|cqm_llc)\b`).FindString(string(cpus)); can != "" {
			cache = doctorLine{Result: "warn", Detail: "not mounted, although the CPU has " + can}
		}
	}
	return map[string]doctorLine{"cgroups": {Result: "ok", Detail: mode + ", " + driver + " driver"}, "resctrl": cache}
}

// nriOff has koord-nri run beside a containerd that has NRI switched off, in a run directory of its own: doctor fails what is
// wrong by name, and says what to do.
func (r *rig) nriOff() {
	r.t.Helper()
	if err := os.WriteFile(r.config, r.configText(standard, nil), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.launch()
	wrong := []doctorLine{
		{Check: "nri-config", Detail: "NRI is disabled in " + r.host.Config, Next: "set disable = false in"},
		{Check: "nri-socket", Detail: r.host.NRISocket + " does not exist", Next: "start containerd with NRI on"},
		{Check: "plugin", Detail: "(pid " + strconv.Itoa(r.plugin.Process.Pid) + ") runs but is not connected", Next: "see nri-config and nri-socket"},
	}
	r.eventually(10*time.Second, func() error { // koord-nri tells of itself once it has begun
		lines := r.checks()
		for _, w := range wrong {
			if !slices.ContainsFunc(lines, func(l doctorLine) bool {
				return l.Result == "FAIL" && l.Check == w.Check && strings.Contains(l.Detail, w.Detail) && strings.Contains(l.Next, w.Next)
			}) {
				return fmt.Errorf("containerd has no NRI, and doctor does not fail %+v: %+v", w, lines)
			}
		}
		return nil
	})
	r.stop(syscall.SIGTERM)
	r.freshRun()
}

// beside puts another plugin where the lab's runtime starts plugins from, and lets a program run that has the name of a foreign agent:
// which check of doctor must name what.
func (r *rig) beside() map[string]string {
	r.t.Helper()
	const agent = "nri-memory-qos"
	plugin := filepath.Join(r.host.NRIPlugin, "10-other") // not executable: the runtime leaves it
	if err := os.WriteFile(plugin, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: self, Args: []string{agent}, Env: []string{standsStill + "=1"}}
	ended, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		err := errors.Join(os.Remove(plugin), cmd.Process.Kill())
		<-ended
		if err != nil {
			r.t.Error(err)
		}
	})
	return map[string]string{"nri-plugins": plugin, "other-agents": agent + " (pid " + strconv.Itoa(cmd.Process.Pid)}
}

// standsStill makes this program wait for its end, whatever it is called: a guest's commands go by the name that they are called.
const standsStill = "KOORD_RT_STANDS_STILL"

func TestMain(m *testing.M) {
	for os.Getenv(standsStill) != "" {
		_ = unix.Pause() // its only answer is that a signal came
	}
	if words := os.Getenv(loadOf); words != "" {
		fmt.Fprintln(os.Stderr, runLoad(strings.Fields(words)))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// processes counts the processes with a name.
func (r *rig) processes(name string) (n int) {
	r.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(text)) == name {
			n++
		}
	}
	return n
}
