// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// events are koordlet's since then that keep wants, newest first.
func (a *agent) events(since time.Time, keep func(*journal.Record) bool) (out []journal.Record, err error) {
	resp, err := over(filepath.Join(a.r.run, "koordlet-metrics.sock")).Get("http://koordlet/events?size=2048&since=" + since.UTC().Format(time.RFC3339Nano))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	for lines := json.NewDecoder(resp.Body); ; {
		var r journal.Record
		if err := lines.Decode(&r); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("/events: %w", err)
		}
		if keep(&r) {
			out = append(out, r)
		}
	}
}

// drifts are the records of drift that koordlet's /events has.
func (a *agent) drifts() ([]journal.Record, error) {
	return a.events(time.Time{}, func(r *journal.Record) bool { return r.Via == journal.ViaDrift })
}

// tells waits until /events has a drift of a knob of a cgroup whose path contains part, and checks whose it is said to be.
func (a *agent) tells(part, knob, found, source string) {
	a.r.t.Helper()
	a.r.eventually(40*time.Second, func() error {
		list, err := a.drifts()
		if err != nil {
			return err
		}
		var others []string
		for i := range list {
			r := &list[i]
			if !strings.Contains(r.Target.Cgroup, part) || r.Knob != knob {
				continue
			}
			if r.Found == found && r.Source == source {
				return nil
			}
			others = append(others, r.Found+" by "+r.Source)
		}
		return fmt.Errorf("no drift of %s of %s to %s by %s at /events; others: %q", knob, part, found, source, others)
	})
	if n := a.figure("koord_rt_koordlet_drift_total", `knob="`+knob+`"`, `source="`+source+`"`); n < 1 {
		a.r.t.Errorf("%v drifts of %s by %s are counted", n, knob, source)
	}
}

// driftIsTold: what the kubelet writes by way of the runtime, which nobody tells koordlet of, and what a human writes are both
// put right, and told apart; in a pod that has opted out a human's word stands.
func driftIsTold(h *alone) {
	free := h.pod(optedOut()) // who knows the next one knows it too
	batch := h.pod(kubelet.Pod{
		Name: "drift-batch", UID: uid("drift-batch"), Labels: map[string]string{"koordinator.sh/qosClass": "BE"},
		Annotations: map[string]string{
			"node.koordinator.sh/extended-resource-spec": `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500"},` +
				`"limits":{"kubernetes.io/batch-cpu":"500"}}}}`,
		},
		Containers: []kubelet.Container{{Name: "main"}},
	})
	shares, burst, ctrl := "main cpu.shares=512", "cpu.cfs_burst_us", "cpu"
	if h.tree.V2() {
		shares, burst, ctrl = "main cpu.weight=59", "cpu.max.burst", ""
	}
	h.soon(60*time.Second, batch, []string{shares})
	h.settled()
	// Written before what is put right, so that whoever sees that has seen this.
	if err := cgroups.Write(h.kube.ContainerDir(free, "main", ctrl), burst, "3000"); err != nil {
		h.t.Fatal(err)
	}
	// A best-effort container has two shares from the kubelet, and gets them again with every update of its own.
	id := batch.Containers["main"]
	if err := h.host.CRI().UpdateContainer(h.t.Context(), id, &runtimeapi.LinuxContainerResources{CpuShares: 2}); err != nil {
		h.t.Fatal(err)
	}
	ls := h.ls[0]
	if err := cgroups.Write(h.kube.ContainerDir(ls, "main", ctrl), burst, "3000"); err != nil {
		h.t.Fatal(err)
	}
	h.soon(40*time.Second, batch, []string{shares})
	h.settled()
	h.a.tells(id, "cpu.shares", "2", "runtime")
	h.a.tells(ls.Containers["main"], "cpu.burst", "3000", "someone")
	h.says([]string{"explain", id}, "2 by runtime]")
	h.says([]string{"explain", ls.Containers["main"]}, "3000 by someone]")
	// What somebody else wrote last is what a restore gives back, and the last step wants what was there before all of them.
	if err := cgroups.Write(h.kube.ContainerDir(ls, "main", ctrl), burst, "0"); err != nil {
		h.t.Fatal(err)
	}
	h.a.tells(ls.Containers["main"], "cpu.burst", "0", "someone")
	h.settled()
	h.a.ticks(3, quietly)
	h.leftAlone(free, burst+"=3000")
}

// optedOut is a pod as those of the crowd that wants no burst of ours.
func optedOut() kubelet.Pod {
	res := kubelet.Resources{Requests: map[string]kubelet.Quantity{"cpu": "1m"}, Limits: map[string]kubelet.Quantity{"cpu": "50m"}}
	return kubelet.Pod{
		Name: "drift-free", UID: uid("drift-free"), Labels: map[string]string{"koordinator.sh/qosClass": "LS"},
		Annotations: map[string]string{protocol.KeyOptOut: protocol.FeatureBurst.String()},
		Containers:  []kubelet.Container{{Name: "main", Resources: res}},
	}
}

// leftAlone: what somebody else has written of a container stands, and nothing is told of the pod.
func (h *alone) leftAlone(run *kubelet.Running, want string) {
	h.t.Helper()
	if err := h.differs(run, []string{"main " + want}); err != nil {
		h.t.Error(err)
	}
	list, err := h.a.events(time.Time{}, func(r *journal.Record) bool { return r.Target.Pod == run.Pod.UID })
	if err != nil {
		h.t.Fatal(err)
	}
	for i := range list {
		h.t.Errorf("%s has opted out, and yet: %s %s, found %q, want %q", run.Pod.Name, list[i].Target, list[i].Knob, list[i].Found, list[i].Want)
	}
}

// TestGuestSystemdKoordlet: systemd's rounding of the tier's quota is no drift, a daemon-reload leaves the quota alone, and a quota that
// an administrator gives the tier's slice by way of systemd is undone and said to be systemd's.
func TestGuestSystemdKoordlet(t *testing.T) {
	r := newRig(t, rigOptions{driver: kubelet.Systemd})
	r.up("", nil)
	be := r.pod(openPod("reload-be", "BE"))
	a := r.koordlet(suppressAt("cfsQuota", 40))
	quota := func() (int, error) { return r.tierQuota(be) }
	// 40 % of eight CPUs, less what the system uses, by 100 µs: systemd's property has steps of 1000.
	r.within(30*time.Second, "quota of the tier", 1, 3200, quota)
	a.ticks(2, quietly)
	const told, ticks = "koord_rt_koordlet_drift_total", 8
	drifts := func() float64 {
		before := a.figure(told)
		a.ticks(ticks, quietly)
		return a.figure(told) - before
	}
	// One or two may be: systemd can be late by a tick, and by more of them for a while. Were its rounding written over, it would be each one.
	n := drifts()
	if n >= ticks/2 {
		n = drifts()
	}
	if n >= ticks/2 {
		t.Errorf("%v drifts in %v ticks although nobody has written but systemd, what koordlet has told it", n, ticks)
	}

	// The least that the tier gets is all that suppression leaves it, whatever the system uses: a quota that stays.
	const least = 3200
	quotaOfLeast, file, ctrl := "320000 100000", "cpu.max", ""
	if !r.tree.V2() {
		quotaOfLeast, file, ctrl = "320000", "cpu.cfs_quota_us", "cpu"
	}
	a.strategy(strings.Replace(suppressAt("cfsQuota", 40), "{", "{cpuSuppressMinPercent: 40, ", 1))
	r.within(30*time.Second, "quota of the tier", least, least, quota)
	a.ticks(3, quietly)
	before := a.figure(told)
	r.reload()
	a.ticks(3, quietly)
	tier := filepath.Dir(r.kube.PodDir(be, ctrl))
	if got := r.file(tier, file); got != quotaOfLeast || a.figure(told) != before {
		t.Errorf("a daemon-reload: %s %s, %v drifts", file, got, a.figure(told)-before)
	}

	slice := filepath.Base(tier)
	if out, err := exec.Command("systemctl", "set-property", "--runtime", slice, "CPUQuota=70%").CombinedOutput(); err != nil {
		t.Fatalf("systemctl set-property %s: %v: %s", slice, err, out)
	}
	a.tells(slice, "cpu.quota", "70000", "systemd")
	r.within(10*time.Second, "quota of the tier after the property", least, least, quota)
	t.Logf("koordlet: a property of %s brought a quota of 70000; repaired and told", slice)
}
