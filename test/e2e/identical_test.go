// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// disabled is a strategy that names every class and switches everything off.
const disabled = `
cpuBurstStrategy: {policy: none}
resourceQOSStrategy:
  lsrClass: {cpuQOS: {enable: false}, memoryQOS: {enable: false}, resctrlQOS: {enable: false}, blkioQOS: {enable: false}}
  lsClass: {cpuQOS: {enable: false}, memoryQOS: {enable: false}, resctrlQOS: {enable: false}, blkioQOS: {enable: false}}
  beClass: {cpuQOS: {enable: false}, memoryQOS: {enable: false}, resctrlQOS: {enable: false}, blkioQOS: {enable: false}}
`

// lifecycleByteIdentical shows that a plugin that has nothing to do leaves no trace: specification, cgroups and process
// are what they are without it.
func lifecycleByteIdentical(r *rig) {
	plain := lsPod("plain")
	plain.Labels = nil
	none := map[string]portrait{}
	for _, p := range []kubelet.Pod{lsrPod("same-lsr"), lsPod("same-ls"), bePod("same-be"), plain} {
		none[p.Name] = r.portray(p)
	}

	r.up(standard, map[string]any{"features": modes("off")})
	for _, p := range []kubelet.Pod{lsrPod("same-lsr"), lsPod("same-ls"), bePod("same-be"), plain} {
		r.identical("all features off", none[p.Name], r.portray(p))
	}
	r.stop(syscall.SIGTERM)

	r.freshRun()
	r.up(disabled, nil)
	r.identical("pod without our keys, everything disabled", none["plain"], r.portray(plain))
	r.stop(syscall.SIGTERM)

	// The comparison can fail: with everything on, specification, both levels of cgroups and the process differ.
	r.freshRun()
	r.up(standard, nil)
	text := strings.Join(differences(none["same-be"], r.portray(bePod("same-be"))), "\n")
	for _, part := range []string{"container specification", "CONTAINER", "pod" + uid("same-be") + "/cpu.", "process @oom", "process @sched"} {
		if !strings.Contains(text, part) {
			r.t.Errorf("with every feature on, no difference of %s is seen:\n%s", part, text)
		}
	}
}

// lifecycleObserve shows that observing changes nothing, and tells what would have been done.
func lifecycleObserve(r *rig) {
	pods := func() []kubelet.Pod { return []kubelet.Pod{lsrPod("seen-lsr"), lsPod("seen-ls"), bePod("seen-be")} }
	none := map[string]portrait{}
	for _, p := range pods() {
		none[p.Name] = r.portray(p)
	}
	r.up(standard, map[string]any{"features": modes("observe")})
	for _, p := range pods() {
		r.identical("observe", none[p.Name], r.portray(p))
	}
	run := r.pod(bePod("seen"))
	var seen struct {
		Settings []struct{ Level, Knob, Want, Drift, Reason string }
	}
	r.eventually(8*time.Second, func() error {
		out, err := r.ctl("explain", "default/seen", "-o", "json")
		if err != nil {
			return fmt.Errorf("explain: %w: %s", err, out)
		}
		return json.Unmarshal([]byte(out), &seen)
	})
	found := false
	for _, s := range seen.Settings {
		if s.Drift != "observe" {
			r.t.Errorf("observing, yet %s %s of %s is %q", s.Level, s.Knob, run.Pod.Name, s.Drift)
		}
		found = found || s.Level == "container" && s.Knob == "cpu.quota" && s.Want == "50000" && s.Reason != ""
	}
	if !found {
		r.t.Errorf("explain does not say that the container's quota would be 50000: %+v", seen.Settings)
	}
	if r.metric("koord_rt_nri_observe_total") == 0 {
		r.t.Error("no observed setting was counted")
	}
	if n := r.metric("koord_rt_nri_writes_total"); n != 0 {
		r.t.Errorf("observing, yet %v values were written", n)
	}
}

// modes gives every feature one mode.
func modes(mode string) map[string]string {
	out := map[string]string{}
	for f := range protocol.NumFeatures {
		out[protocol.Feature(f).String()] = mode
	}
	return out
}

// portrait is all that the runtime and the kernel know of a pod, without ids and process numbers.
type portrait map[string]string

// portray makes a pod, looks and removes it.
func (r *rig) portray(p kubelet.Pod) portrait {
	r.t.Helper()
	run := r.pod(p)
	out := r.trees(run)
	ids := strings.NewReplacer(run.Containers["main"], "CONTAINER", run.SandboxID, "SANDBOX")
	_, info, err := r.host.CRI().ContainerStatus(r.t.Context(), run.Containers["main"])
	if err != nil {
		r.t.Fatal(err)
	}
	_, sandbox, err := r.host.CRI().PodStatus(r.t.Context(), run.SandboxID)
	if err != nil {
		r.t.Fatal(err)
	}
	out["container specification"] = processes.ReplaceAllString(ids.Replace(indented(info.RuntimeSpec)), "/proc/PID/")
	out["sandbox specification"] = processes.ReplaceAllString(ids.Replace(indented(sandbox.RuntimeSpec)), "/proc/PID/")
	for _, file := range []string{"@oom", "@sched"} {
		if out["process "+file], err = r.value(run, "main "+file); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.kube.StopPod(r.t.Context(), run); err != nil {
		r.t.Fatal(err)
	}
	return out
}

var processes = regexp.MustCompile(`/proc/\d+/`)

func indented(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	text, _ := json.MarshalIndent(v, "", " ") // it came from JSON
	return string(text)
}

// trees reads the control files of a pod's cgroup, its containers and the directories above, in every hierarchy. Files
// that only measure are left out: they differ from one moment to the next.
func (r *rig) trees(run *kubelet.Running) portrait {
	r.t.Helper()
	out := portrait{}
	ids := strings.NewReplacer(run.Containers["main"], "CONTAINER", run.SandboxID, "SANDBOX")
	for _, ctrl := range r.controllers() {
		pod := r.kube.PodDir(run, ctrl)
		top := filepath.Dir(r.kubepods(ctrl))
		for dir := filepath.Dir(pod); strings.HasPrefix(dir, top+"/"); dir = filepath.Dir(dir) {
			r.controlFiles(out, ids, ctrl, dir)
		}
		err := filepath.WalkDir(pod, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				r.controlFiles(out, ids, ctrl, path)
			}
			return err
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	if len(out) < 40 {
		r.t.Errorf("only %d control files were found: something is wrong with the search", len(out))
	}
	return out
}

// controllers are the hierarchies in which a container has a directory.
func (r *rig) controllers() []string {
	if r.tree.V2() {
		return []string{""}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.tree.Controllers)), func(c string) bool { return strings.HasPrefix(c, "name=") })
}

// measuring are writable files, or parts of their names, that count and do not control; and those that list processes.
var measuring = regexp.MustCompile(`^(cgroup\.procs|cgroup\.threads|tasks|cpuacct\.usage|cgroup\.max\..*)$|pressure|failcnt|max_usage|peak|event_control|reset_stats|\.events|stat$`)

func (r *rig) controlFiles(out portrait, ids *strings.Replacer, ctrl, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o400 == 0 {
			continue
		}
		name := e.Name()
		control := info.Mode()&0o200 != 0 || name == "devices.list" || name == "cpuset.cpus.effective" || name == "cpuset.effective_cpus"
		if !control || measuring.MatchString(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			text = []byte("error: " + err.Error())
		}
		out[ctrl+":"+ids.Replace(filepath.Join(dir, name))] = ids.Replace(string(text))
	}
}

// identical reports each difference of two portraits.
func (r *rig) identical(what string, want, got portrait) {
	r.t.Helper()
	for _, d := range differences(want, got) {
		r.t.Errorf("%s: %s", what, d)
	}
}

func differences(want, got portrait) []string {
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	var out []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		a, b := want[k], got[k]
		if a == b {
			continue
		}
		if strings.HasSuffix(k, "specification") {
			a, b = firstDifference(a, b)
		}
		out = append(out, fmt.Sprintf("%s: without us %q, with us %q", k, a, b))
	}
	return out
}

// firstDifference is the first line in which two texts part.
func firstDifference(a, b string) (string, string) {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return x[i], y[i]
		}
	}
	return fmt.Sprint(len(x), " lines"), fmt.Sprint(len(y), " lines")
}
