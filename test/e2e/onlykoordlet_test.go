// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// A node where koordlet is all that there is of us: no plugin, no proxy. It brings pods that are there already to what the same pods
// get at creation elsewhere, and puts back what somebody writes over.

func TestHostOnlyKoordlet(t *testing.T) {
	r := onlyKoordlet(t, "batch", "blkio", "burst", "cpuset-host", "identity", "oom-default")
	t.Run("RuntimeComesLate", func(t *testing.T) { runtimeComesLate(r.sub(t)) })
}

func TestGuestOnlyKoordlet(t *testing.T) {
	names := []string{"blkio", "burst", "cpuset-lsr", "llc", "memory-annotation", "memory-m5"}
	if _, err := cookie(os.Getpid()); err == nil { // on the kernel that is compiled with core scheduling
		names = append(names, "core-sched")
	}
	onlyKoordlet(t, names...)
}

// onlyKoordlet goes through scenarios. Those of host and guest together set each kind of file, group and process attribute that can be
// set on a running container; none needs the handoff, which is koordlet's own to write, or koord-nri's configuration.
func onlyKoordlet(t *testing.T, names ...string) *rig {
	r := newRig(t, rigOptions{memory: paperMemory})
	fit := slices.DeleteFunc(r.fitting(), func(s scenario.Scenario) bool { return !slices.Contains(names, s.Name) })
	if len(fit) != len(names) {
		t.Errorf("%d of the scenarios %v fit this machine", len(fit), names)
	}
	for _, s := range fit {
		t.Run(s.Name, func(t *testing.T) {
			r := r.sub(t)
			r.freshRun()
			pods := r.create(s.Pods)
			wants := slices.DeleteFunc(slices.Clone(s.Wants(r.version, false)), func(w scenario.Want) bool {
				return strings.HasPrefix(w.File, "@env") || strings.HasPrefix(w.File, "@device") || strings.HasPrefix(w.File, "@access")
			})
			without := r.valuesOf(&s, pods, wants)
			a := r.newAgent()
			a.configure(r.strategyOf(&s))
			a.start()
			r.settle(&s, pods, wants)
			undone := r.undo(pods, wants, without)
			if undone == 0 {
				t.Error("no value of the scenario could be written over: its repair shows nothing")
			}
			r.eventually(2*engine.DefaultDrift, func() error {
				var errs []error
				for _, w := range wants {
					if got, err := r.readOf(&s, pods, w); err != nil || got != w.Value {
						errs = append(errs, fmt.Errorf("after somebody's write: want %s, the kernel has %q (%w)", w, got, err))
					}
				}
				return errors.Join(errs...)
			})
			t.Logf("%d of %d values were written over and came back", undone, len(wants))
			r.remove(pods)
			r.noPodGroups()
			a.end(syscall.SIGTERM)
		})
	}
	return r
}

// runtimeComesLate starts koordlet before its runtime is there: it lives, says what it waits for, and begins when that comes.
func runtimeComesLate(r *rig) {
	r.freshRun()
	be := r.pod(bePod("late-be"))
	a := r.newAgent()
	a.runtime = filepath.Join(filepath.Dir(r.config), "runtime.sock")
	var spec any
	if err := yaml.Unmarshal([]byte(standard), &spec); err != nil {
		r.t.Fatal(err)
	}
	a.configure(spec)
	a.launch()
	loops := func() (waiting bool, out []status.Loop) {
		a.lives()
		entries, err := status.ReadAll(r.run, "/proc")
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Status.Agent != nil {
				out = append(out, e.Status.Agent.Loops...)
			}
		}
		return slices.ContainsFunc(out, func(l status.Loop) bool {
			return l.State == status.StateDegraded && strings.Contains(l.Err, a.runtime)
		}), out
	}
	r.eventually(30*time.Second, func() error {
		if waiting, all := loops(); !waiting {
			return fmt.Errorf("koordlet does not say that it waits for %s: %+v", a.runtime, all)
		}
		return nil
	})
	if err := os.Symlink(r.host.Socket, a.runtime); err != nil {
		r.t.Fatal(err)
	}
	r.eventually(30*time.Second, func() error {
		waiting, all := loops()
		if waiting || len(all) == 0 {
			return fmt.Errorf("the runtime is there, koordlet's loops are %+v", all)
		}
		return r.differs(be, wants("BE", ""))
	})
}

// strategyOf is what a configuration says of the scenario's strategy: a whole NodeSLO goes to the strategy file.
func (r *rig) strategyOf(s *scenario.Scenario) (spec any) {
	r.t.Helper()
	var err error
	if m := s.Manifest(); m != nil {
		err = os.WriteFile(r.base()["strategyFile"].(string), m, 0o600)
	} else {
		err = yaml.Unmarshal(s.Strategy, &spec)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return spec
}

// valuesOf are the wanted files and attributes as they are now; "" of what does not exist yet.
func (r *rig) valuesOf(s *scenario.Scenario, pods map[string]*kubelet.Running, wants []scenario.Want) []string {
	out := make([]string, len(wants))
	for i, w := range wants {
		out[i], _ = r.readOf(s, pods, w)
	}
	return out
}

// undo writes what was there without us over what is wanted, as far as the kernel takes it, and reports how many values differ
// from the wanted ones afterwards. Parents and children, quota and burst bound each other: what is refused is tried once more.
func (r *rig) undo(pods map[string]*kubelet.Running, wants []scenario.Want, without []string) (undone int) {
	r.t.Helper()
	todo := map[int]bool{}
	for i, w := range wants {
		if without[i] != w.Value {
			todo[i] = true
		}
	}
	refused := map[int]error{}
	for range 2 {
		for i := range wants {
			if !todo[i] {
				continue
			}
			if refused[i] = r.writeOver(pods, wants[i], without[i]); refused[i] == nil {
				delete(todo, i)
				undone++
			}
		}
	}
	for i := range todo {
		r.t.Logf("%s stays: the kernel refuses %q: %v", wants[i], without[i], refused[i])
	}
	return undone
}

// emptied is what empties a file in which a wanted line stands: no limit for the disk that the line begins with, else an empty line, which
// the kernel may refuse. A write of nothing does not reach it.
func emptied(w scenario.Want) string {
	disk, _, _ := strings.Cut(w.Value, " ")
	switch {
	case w.File == "io.max":
		return disk + " rbps=max wbps=max riops=max wiops=max"
	case strings.HasPrefix(w.File, "blkio.throttle."):
		return disk + " 0"
	}
	return "\n"
}

// writeOver is somebody's write past everybody.
func (r *rig) writeOver(pods map[string]*kubelet.Running, w scenario.Want, value string) error {
	if w.Group != "" { // all of the cache
		root, err := os.ReadFile(filepath.Join(resctrl, "schemata"))
		if err != nil {
			return err
		}
		if value, err = scenario.SchemataLine(string(root), w.File); err != nil {
			return err
		}
		return cgroups.Write(filepath.Join(resctrl, w.Group), "schemata", w.File+":"+value+"\n")
	}
	if !strings.HasPrefix(w.File, "@") {
		if value == "" {
			value = emptied(w)
		}
		return cgroups.Write(r.dirOf(pods, w), w.File, value)
	}
	pid, err := r.pid(pods[w.Pod], w.Container)
	if err != nil {
		return err
	}
	switch w.File {
	case "@oom":
		return cgroups.Write("/proc/"+strconv.Itoa(pid), "oom_score_adj", value)
	case "@sched":
		return unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
	case "@resctrl":
		return cgroups.Write(resctrl, "tasks", strconv.Itoa(pid))
	case "@cookie": // this process has none
		return unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_SHARE_TO, uintptr(pid), unix.PR_SCHED_CORE_SCOPE_THREAD_GROUP, 0)
	}
	return fmt.Errorf("no way to write %s", w.File)
}
