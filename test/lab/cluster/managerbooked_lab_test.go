// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// booked: the best-effort pods use far more memory than the 64 MiB that they request together, as koordlet reports it. While the strategy has a mark for that,
// batch-memory is not raised though the cluster lends more of the node, and batch-cpu is; without it both are. The metric of what is held tells of it as
// long as that lasts.
func (m *managed) booked(t *testing.T) {
	m.tell(t, map[string]string{keyThreshold: strings.Replace(thresholdConfig(50), `"enable": true`, `"enable": true, "memoryRequestUtilizationPercent": 80`, 1)})
	m.slo(t, 60*time.Second, "NodeSLO with a mark", func(o cluster.Object) bool { return percent(o, "memoryRequestUtilizationPercent") == 80 })
	var whole int64
	eventually(t, 90*time.Second, func() error {
		s, err := m.look(t)
		if err == nil && !slices.ContainsFunc(s.report.Pods, func(u capacity.Usage) bool { return u.Name == "batch/spark" && u.Used.Memory > 0 }) {
			err = fmt.Errorf("batch/spark is not in the report: %+v", s.report.Pods)
		}
		whole = int64(s.node.Capacity.Memory)
		if err == nil {
			err = m.requested(t)
		}
		return err
	})
	lends := func() (cpu, memory int64) {
		node := m.node(t)
		at := func(name string) int64 { return quantityAt(t, node, "status", "allocatable", name) / 1000 }
		return at(protocol.ResourceBatchCPU), at(protocol.ResourceBatchMemory)
	}
	cpu, memory := lends()
	more := strings.NewReplacer(
		fmt.Sprintf(`"cpuReclaimThresholdPercent": %d`, reclaimCPU), `"cpuReclaimThresholdPercent": 1000`,
		fmt.Sprintf(`"memoryReclaimThresholdPercent": %d`, reclaimMemory), fmt.Sprintf(`"memoryReclaimThresholdPercent": %d`, reclaimMemory+20),
	).Replace(lentConfig)
	m.tell(t, map[string]string{keyColocation: more})
	// CPU and memory are written by one patch, and no use of CPU is as large as that.
	wider := cpu + int64(runtime.NumCPU())*4000
	var held int64
	eventually(t, 60*time.Second, func() error {
		now, got := lends()
		if held = got; now < wider {
			return fmt.Errorf("batch-cpu is %d, want more than %d", now, wider)
		}
		return nil
	})
	if held > memory+whole/10 {
		t.Errorf("batch-memory was raised from %d to %d MiB", memory/mib, held/mib)
	}
	leader, mark := m.leader(t), `koord_rt_manager_node_batch_memory_held\{node="`+m.k.Node+`"\} [1-9].*`
	leader.shows(t, 30*time.Second, mark)
	m.tell(t, map[string]string{keyThreshold: thresholdOff(50)})
	eventually(t, 60*time.Second, func() error {
		if _, got := lends(); got < memory+whole/10 {
			return fmt.Errorf("batch-memory is %d MiB without the mark, was %d MiB of %d with it", got/mib, memory/mib, whole/mib)
		}
		return nil
	})
	eventually(t, 30*time.Second, func() error {
		is, err := leader.has(t.Context(), mark)
		if err == nil && is {
			err = fmt.Errorf("%s says that memory is held, and all is lent", leader.metrics)
		}
		return err
	})
	_, free := lends()
	t.Logf("batch-memory stays at %d MiB (%d MiB) with the mark, and is %d MiB without", held/mib, memory/mib, free/mib)
	m.tell(t, map[string]string{keyColocation: lentConfig})
	eventually(t, 60*time.Second, func() error { return m.asCalculated(t) })
}

// requested is an error unless the report has, as what best-effort pods request, the sum of their batch resources, which count as the CPUs and bytes
// that they are (C2 of the documents), and adds up with it.
func (m *managed) requested(t *testing.T) error {
	t.Helper()
	pods, err := m.c.Admin().Items(t.Context(), "/api/v1/pods?fieldSelector=spec.nodeName="+m.k.Node)
	if err != nil {
		return err
	}
	var want capacity.Amounts
	for _, p := range pods {
		if phase := p.Str("status", "phase"); p.Str("metadata", "labels", protocol.LabelQoSClass) != "BE" || phase == "Succeeded" || phase == "Failed" {
			continue
		}
		of := func(name string) int64 {
			return quantityAt(t, p, "spec", "containers", 0, "resources", "requests", name) / 1000
		}
		want.CPU += unit.MilliCPU(of(protocol.ResourceBatchCPU))
		want.Memory += unit.Bytes(of(protocol.ResourceBatchMemory))
	}
	metric, err := m.c.Admin().Get(t.Context(), reports+"/"+m.k.Node)
	if err != nil {
		return err
	}
	if got := amountsAt(t, metric, "status", "beMetric", "request"); got != want || want.CPU == 0 || want.Memory == 0 {
		return fmt.Errorf("best-effort pods request %+v by the report, and %+v by their specs", got, want)
	}
	return requestsAdd(t, metric)
}
