// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// drifts are the records of drift that koordlet's /events has.
func (a *agent) drifts() (out []journal.Record, err error) {
	resp, err := over(filepath.Join(a.r.run, "koordlet-metrics.sock")).Get("http://koordlet/events?size=2048")
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
		if r.Via == journal.ViaDrift {
			out = append(out, r)
		}
	}
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
// put right, and told apart.
func driftIsTold(h *alone) {
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
}
