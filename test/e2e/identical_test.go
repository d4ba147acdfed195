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
	"github.com/koord-rt/koord-rt/test/scenario"
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
	disk, _ := r.disk()
	r.makeDevices(card)
	plain := lsPod("plain")
	plain.Labels = nil
	none := map[string]portrait{}
	for _, p := range append(asking("same", disk), plain) {
		none[p.Name] = r.portray(p)
	}

	r.up(everything(disk), map[string]any{"features": modes("off")})
	for _, p := range append(asking("same", disk), plain) {
		r.identical("all features off", none[p.Name], r.portray(p))
	}
	r.stop(syscall.SIGTERM)

	r.freshRun()
	r.up(disabled, nil)
	r.identical("pod without our keys, everything disabled", none["plain"], r.portray(plain))
	r.stop(syscall.SIGTERM)

	// The comparison can fail: with everything on, specification, both levels of cgroups, the process and its group differ.
	r.freshRun()
	r.up(everything(disk), nil)
	pod, container := "pod"+uid("same-be")+"/", "CONTAINER/"
	if r.driver == kubelet.Systemd {
		pod, container = "pod"+strings.ReplaceAll(uid("same-be"), "-", "_")+".slice/", "CONTAINER.scope/"
	}
	parts := []string{
		"container specification", "CONTAINER", pod + "cpu.", "process @oom", "process @sched",
		map[bool]string{false: container + "blkio.throttle.read_bps_device", true: pod + "io.max"}[r.tree.V2()],
	}
	if r.tree.V2() {
		parts = append(parts, container+"memory.low")
	} else {
		parts = append(parts, "CONTAINER/devices.list")
	}
	if slices.Contains(present(r.t), scenario.NeedResctrl) {
		parts = append(parts, "process @resctrl", resctrl+"/BE/schemata", resctrl+"/koordlet-"+uid("same-be")+"/schemata")
	}
	be := r.portray(asking("same", disk)[2])
	text := strings.Join(differences(none["same-be"], be), "\n")
	for _, part := range parts {
		if !strings.Contains(text, part) {
			r.t.Errorf("with every feature on, no difference of %s is seen:\n%s", part, text)
		}
	}
	if part := `"NVIDIA_VISIBLE_DEVICES=`; !strings.Contains(be["container specification"], part) || strings.Contains(none["same-be"]["container specification"], part) {
		r.t.Errorf("with every feature on, %s is not what differs", part)
	}
}

// card is a GPU that the pods of asking have allocated.
var card = []scenario.Device{{Path: "/dev/nvidia0", Major: 195}}

// allocated is how the scheduler says that a pod has all of the card.
const allocated = `{"gpu":[{"minor":0,"id":"GPU-lab","resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100"}}]}`

// asking are an LSR, an LS and a BE pod, each with every label and annotation that asks us for something.
func asking(name, disk string) []kubelet.Pod {
	pods := []kubelet.Pod{lsrPod(name + "-lsr"), lsPod(name + "-ls"), bePod(name + "-be")}
	for i := range pods {
		p := &pods[i]
		p.Labels["koordinator.sh/core-sched-group-id"] = name
		p.Annotations = mergeMaps(p.Annotations, map[string]string{
			"koordinator.sh/oom-score-adj":               "800",
			"koordinator.sh/cpuBurst":                    `{"policy":"auto","cpuBurstPercent":60}`,
			"koordinator.sh/memoryQOS":                   `{"policy":"auto","minLimitPercent":20,"lowLimitPercent":40,"throttlingPercent":80,"oomKillGroup":1}`,
			"koordinator.sh/blkioQOS":                    `{"blocks":[{"name":"/dev/` + disk + `","type":"device","ioCfg":{"readBPS":1048576}}]}`,
			"node.koordinator.sh/resctrl":                `{"llc":{"schemata":{"range":[0,50]}}}`,
			"scheduling.koordinator.sh/device-allocated": allocated,
		})
	}
	return pods
}

// lifecycleObserve shows that observing changes nothing, and tells what would have been done.
func lifecycleObserve(r *rig) {
	disk, _ := r.disk()
	r.makeDevices(card)
	none := map[string]portrait{}
	for _, p := range asking("seen", disk) {
		none[p.Name] = r.portray(p)
	}
	r.up(everything(disk), map[string]any{"features": modes("observe")})
	for _, p := range asking("seen", disk) {
		r.identical("observe", none[p.Name], r.portray(p))
	}
	last := asking("seen-last", disk)[2]
	r.pod(last)
	owners := map[protocol.Feature]bool{protocol.FeatureBatch: false, protocol.FeatureIdentity: false, protocol.FeatureBlkIO: false, protocol.FeatureOOMScore: false, protocol.FeatureDevices: false}
	if r.tree.V2() {
		owners[protocol.FeatureMemory] = false
	}
	if slices.Contains(present(r.t), scenario.NeedResctrl) {
		owners[protocol.FeatureLLC] = false
	}
	r.eventually(8*time.Second, func() error { // what is told of a pod follows it
		var seen struct {
			Settings []struct{ Level, Knob, Want, Drift, Owner, Reason string }
		}
		out, err := r.ctl("explain", "default/"+last.Name, "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &seen)
		}
		if err != nil {
			return fmt.Errorf("explain: %w: %s", err, out)
		}
		found := false
		for _, s := range seen.Settings {
			if f, ok := protocol.ParseFeature(s.Owner); ok {
				owners[f] = true
			}
			if s.Drift != "observe" {
				r.t.Errorf("observing, yet %s %s of %s is %q", s.Level, s.Knob, last.Name, s.Drift)
			}
			found = found || s.Level == "container" && s.Knob == "cpu.quota" && s.Want == "50000" && s.Reason != ""
		}
		if !found {
			return fmt.Errorf("explain does not say that the container's quota would be 50000: %+v", seen.Settings)
		}
		for f, seen := range owners {
			if !seen {
				return fmt.Errorf("explain does not say what %s would do", f)
			}
			if r.metric("koord_rt_nri_observe_total", `"`+f.String()+`"`) == 0 {
				return fmt.Errorf("no observed setting of %s was counted", f)
			}
		}
		return nil
	})
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
	maps.Copy(out, resctrlTree(r))
	for _, file := range []string{"@oom", "@sched", "@resctrl"} {
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

// controllers are the hierarchies in which a container has a directory; of two controllers in one the first.
func (r *rig) controllers() []string {
	if r.tree.V2() {
		return []string{""}
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.tree.Controllers)), func(c string) bool {
		mount := r.tree.Controllers[c]
		again := seen[mount]
		seen[mount] = true
		return again || strings.HasPrefix(c, "name=")
	})
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
		if name == "devices.list" { // a set: systemd puts the entries in the order of its own when it writes a unit's attributes again
			text = []byte(strings.Join(slices.Sorted(strings.Lines(string(text))), ""))
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
