// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// Parts of the node that lentConfig lends, in percent. That of CPU lends what is not there, so that something is left for a pod
// on a small machine that does other work too.
const (
	reclaimCPU    = 250
	reclaimMemory = 80
)

// lentConfig is colocation-config that lends. Small differences are written too, so that the node says what the formula says.
var lentConfig = strings.Replace(collectConfig, `"enable": false`, fmt.Sprintf(
	`"enable": true, "cpuReclaimThresholdPercent": %d, "memoryReclaimThresholdPercent": %d, "resourceDiffThreshold": 0.01, "updateTimeThresholdSeconds": 1`,
	reclaimCPU, reclaimMemory), 1)

// quantityAt is a quantity of an object in thousandths, 0 where there is none.
func quantityAt(t *testing.T, o cluster.Object, at ...any) int64 {
	t.Helper()
	text := o.Str(at...)
	if text == "" {
		return 0
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		t.Fatalf("quantity %q at %v: %v", text, at, err)
	}
	return q.MilliValue()
}

// amountsAt are CPU and memory of a list.
func amountsAt(t *testing.T, o cluster.Object, at ...any) capacity.Amounts {
	t.Helper()
	value := func(name string) int64 { return quantityAt(t, o, append(slices.Clone(at), name)...) }
	return capacity.Amounts{CPU: unit.MilliCPU(value("cpu")), Memory: unit.Bytes(value("memory") / 1000)}
}

// node reads the Node object.
func (m *managed) node(t *testing.T) cluster.Object {
	t.Helper()
	o, err := m.c.Admin().Get(t.Context(), "/api/v1/nodes/"+m.k.Node)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// batchCPU is the node's batch-cpu in milli-cores, and whether it has any.
func (m *managed) batchCPU(t *testing.T) (int64, bool) {
	t.Helper()
	node := m.node(t)
	return quantityAt(t, node, "status", "allocatable", protocol.ResourceBatchCPU) / 1000,
		node.Str("status", "allocatable", protocol.ResourceBatchCPU) != ""
}

// seen is what the formulas go by, as the API server tells it now.
type seen struct {
	node   capacity.Node
	pods   []capacity.Pod
	report capacity.Report
	object cluster.Object // the Node
}

func (m *managed) look(t *testing.T) (s seen, err error) {
	t.Helper()
	metric, err := m.c.Admin().Get(t.Context(), reports+"/"+m.k.Node)
	if err != nil {
		return s, err
	}
	pods, err := m.c.Admin().Items(t.Context(), "/api/v1/pods?fieldSelector=spec.nodeName="+m.k.Node)
	if err != nil {
		return s, err
	}
	s.object = m.node(t)
	s.node.Capacity = amountsAt(t, s.object, "status", "capacity")
	s.node.Kubelet = s.node.Capacity.Minus(amountsAt(t, s.object, "status", "allocatable"))
	class := func(qos string) protocol.PriorityClass {
		if qos == "BE" {
			return protocol.PriorityBatch
		}
		return protocol.PriorityProd
	}
	for _, p := range pods {
		s.pods = append(s.pods, capacity.Pod{
			Name: p.Str("metadata", "namespace") + "/" + p.Str("metadata", "name"), Class: class(p.Str("metadata", "labels", protocol.LabelQoSClass)),
			Request: amountsAt(t, p, "spec", "containers", 0, "resources", "requests"),
		})
	}
	s.report.System = amountsAt(t, metric, "status", "nodeMetric", "systemUsage", "resources")
	s.report.Node, s.report.NodeOK = amountsAt(t, metric, "status", "nodeMetric", "nodeUsage", "resources"), true
	s.report.ProdFree = amountsAt(t, metric, "status", "prodReclaimableMetric", "resource", "resources")
	peak := []any{"status", "prodPeakMetric", "resource", "resources"}
	s.report.ProdPeak, s.report.PeakOK = amountsAt(t, metric, peak...), metric.At(peak...) != nil
	list, _ := metric.At("status", "podsMetric").([]any)
	for i := range list {
		at := func(field string) string { return metric.Str("status", "podsMetric", i, field) }
		s.report.Pods = append(s.report.Pods, capacity.Usage{
			Name: at("namespace") + "/" + at("name"), Class: class(at("qos")), Used: amountsAt(t, metric, "status", "podsMetric", i, "podUsage", "resources"),
		})
	}
	return s, nil
}

// byHand is the formula once more, in words of its own: what may be used of the node, less the larger of what the system uses and what
// the kubelet keeps, less what LS pods use. It holds while every LS pod is in the report.
func (s *seen) byHand() (cpu, memory int64) {
	cpu, memory = int64(s.node.Capacity.CPU)*reclaimCPU/100, int64(s.node.Capacity.Memory)*reclaimMemory/100
	cpu -= max(int64(s.report.System.CPU), int64(s.node.Kubelet.CPU))
	memory -= max(int64(s.report.System.Memory), int64(s.node.Kubelet.Memory))
	for _, u := range s.report.Pods {
		if u.Class == protocol.PriorityProd {
			cpu, memory = cpu-int64(u.Used.CPU), memory-int64(u.Used.Memory)
		}
	}
	return max(cpu, 0), max(memory, 0)
}

// lent: what the node gets is what the formulas make of its NodeMetric.
func (m *managed) lent(t *testing.T) {
	if got, ok := m.batchCPU(t); ok {
		t.Fatalf("batch-cpu %d before colocation is on", got)
	}
	m.tell(t, map[string]string{keyColocation: lentConfig})
	begun := time.Now()
	eventually(t, 60*time.Second, func() error { return m.asCalculated(t) })
	t.Logf("batch and mid resources as calculated after %s", time.Since(begun).Round(time.Millisecond))
}

// asCalculated compares the node with the formulas.
func (m *managed) asCalculated(t *testing.T) error {
	t.Helper()
	s, err := m.look(t)
	if err != nil {
		return err
	}
	return s.agrees(t)
}

// agrees is an error unless the node has what the formulas make of its report.
func (s *seen) agrees(t *testing.T) error {
	t.Helper()
	for _, name := range []string{"batch/ls", "batch/web"} {
		if !slices.ContainsFunc(s.report.Pods, func(u capacity.Usage) bool { return u.Name == name }) {
			return fmt.Errorf("%s is not yet in the report", name)
		}
	}
	batch := (&capacity.BatchStrategy{CPUReclaim: reclaimCPU, MemoryReclaim: reclaimMemory}).Batch(&s.node, s.pods, &s.report)
	if cpu, memory := s.byHand(); cpu != int64(batch.CPU) || memory != int64(batch.Memory) {
		t.Fatalf("by hand %d and %d, by policy/capacity %+v", cpu, memory, batch)
	}
	mid := (&capacity.MidStrategy{CPUThreshold: 100, MemoryThreshold: 100}).Mid(&s.node, s.pods, &s.report)
	var errs []error
	for _, list := range []string{"allocatable", "capacity"} {
		for name, want := range map[string]int64{
			protocol.ResourceBatchCPU: int64(batch.CPU), protocol.ResourceBatchMemory: int64(batch.Memory),
			protocol.ResourceMidCPU: int64(mid.CPU), protocol.ResourceMidMemory: int64(mid.Memory),
		} {
			got, there := quantityAt(t, s.object, "status", list, name)/1000, s.object.Str("status", list, name) != ""
			// What differs by a thousandth is not worth a write.
			if off := max(got-want, want-got); !there || off*500 > want {
				errs = append(errs, fmt.Errorf("%s of %s is %d, calculated %d", name, list, got, want))
			}
		}
	}
	if len(errs) == 0 {
		t.Logf("capacity %+v, system %+v, batch %+v, mid %+v", s.node.Capacity, s.report.System, batch, mid)
	}
	return errors.Join(errs...)
}

// share is who has the node's CPUs, in thousandths: what it lends of them, what the report says of batch/web, and what else the formula
// takes off.
type share struct{ lent, web, rest int64 }

// share tells the parts of the formula once more as byHand does.
func (s *seen) share(t *testing.T) (out share) {
	t.Helper()
	out.lent = quantityAt(t, s.object, "status", "allocatable", protocol.ResourceBatchCPU) / 1000
	out.rest = max(int64(s.report.System.CPU), int64(s.node.Kubelet.CPU))
	for _, u := range s.report.Pods {
		switch {
		case u.Name == "batch/web":
			out.web = int64(u.Used.CPU)
		case u.Class == protocol.PriorityProd:
			out.rest += int64(u.Used.CPU)
		}
	}
	return out
}

// moved is an error unless what the node lends has gone down since then by most of what web uses more, or up by most of what it uses less: the formula
// takes off the whole of it, also where reclaimCPU lends more than there is. What else has moved is allowed for, because on a machine that does other
// work that has less while web computes, and so are differences that are not worth a write.
func (s share) moved(since share) error {
	fell, web, rest := since.lent-s.lent, s.web-since.web, s.rest-since.rest
	slack := max(s.lent, since.lent)/250 + 1 // twice what agrees lets pass
	if web < 0 {
		fell, web, rest = -fell, -web, -rest
	}
	if want := web*3/4 + min(rest, 0) - slack; fell < want {
		return fmt.Errorf("of the node's CPUs %+v, before %+v: what is lent has moved by %d, want %d at least", s, since, fell, want)
	}
	return nil
}

// uses waits until the report has a use of web's CPU that fits, and the node says what the formulas make of it.
func (m *managed) uses(t *testing.T, limit time.Duration, fits func(share) error) (got share) {
	t.Helper()
	begun := time.Now()
	eventually(t, limit, func() error {
		s, err := m.look(t)
		if err != nil {
			return err
		}
		if err := s.agrees(t); err != nil {
			return err
		}
		got = s.share(t)
		return fits(got)
	})
	t.Logf("web uses %d, batch-cpu %d, after %s", got.web, got.lent, time.Since(begun).Round(time.Millisecond))
	return got
}

// much is a use of CPU in thousandths, averaged over a minute, that an idle pod has not, and one that computes has on a busy machine too.
const much = 60

// little is an error unless web computes next to nothing.
func little(s share) error {
	if s.web >= much/2 {
		return fmt.Errorf("batch/web still uses %d", s.web)
	}
	return nil
}

// loopConfig is resource-threshold-config by which the best-effort class gets what others leave of nine tenths of the node, however little.
const loopConfig = `{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 90, "memoryEvictThresholdPercent": 100}}`

// load: what an LS pod computes is taken from the best-effort class in the kernel, and from batch-cpu with the next reports; the class, in which the
// profile's pod is, has it back soon after the load, and batch-cpu when the load has left the average ([managed.givenBack]). That the profile's pod
// gets no more is looked at under a load of its own, so that what it computes is in none of the figures before.
func (m *managed) load(t *testing.T) {
	config, err := m.c.Admin().Get(t.Context(), strategies)
	if err != nil {
		t.Fatal(err)
	}
	m.tell(t, map[string]string{keyThreshold: loopConfig})
	m.slo(t, 60*time.Second, "NodeSLO that leaves what is free", func(o cluster.Object) bool {
		return percent(o, "cpuSuppressThresholdPercent") == 90 && percent(o, "cpuSuppressMinPercent") == 0
	})
	free := m.uses(t, 90*time.Second, little)
	calm := m.steady(t)
	quotaIs := func(what string, ok func(int) bool) {
		begun := time.Now()
		eventually(t, 60*time.Second, func() error {
			got, err := m.quota()
			if err == nil && !ok(got) {
				err = fmt.Errorf("%s: the quota of the best-effort class is %d, it was %d", what, got, calm)
			}
			if err == nil {
				t.Logf("%s: quota %d of %d after %s", what, got, calm, time.Since(begun).Round(time.Millisecond))
			}
			return err
		})
	}
	const half = 50000 // of a CPU; web computes on a whole one
	less := func(got int) bool { return got >= 0 && got <= calm-half }
	stop := m.spinIn(t, m.web, quiet)
	quotaIs("under load", less)
	m.loaded = m.uses(t, 90*time.Second, func(now share) error {
		if now.web < much {
			return fmt.Errorf("batch/web uses %d", now.web)
		}
		return now.moved(free)
	})
	stop()
	quotaIs("after the load", func(got int) bool { return got >= calm-half/2 })
	stop = m.spinIn(t, m.web, quiet)
	quotaIs("under load again", less)
	m.yields(t, m.ready(t, "spark"))
	stop()
	m.tell(t, map[string]string{keyThreshold: config.Str("data", keyThreshold)})
}

// steady is the quota of the best-effort class once it moves by less than a twentieth of the node in three seconds, which are three decisions: it grows in
// steps.
func (m *managed) steady(t *testing.T) (quota int) {
	t.Helper()
	eventually(t, 60*time.Second, func() error {
		before := quota
		time.Sleep(3 * time.Second)
		var err error
		quota, err = m.quota()
		if off := max(quota-before, before-quota); err == nil && (quota < 0 || off > runtime.NumCPU()*100000/20) {
			err = fmt.Errorf("the quota of the best-effort class goes from %d to %d", before, quota)
		}
		return err
	})
	return quota
}

// givenBack: once the load has left the node's average, batch-cpu comes back.
func (m *managed) givenBack(t *testing.T) {
	m.uses(t, 150*time.Second, func(now share) error {
		if err := little(now); err != nil {
			return err
		}
		return now.moved(m.loaded)
	})
}

// off: a cluster that does not lend any more has nothing of it left on its nodes.
func (m *managed) off(t *testing.T) {
	m.tell(t, map[string]string{keyColocation: collectConfig})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	left := func(o cluster.Object) (out []string) {
		for _, list := range []string{"allocatable", "capacity"} {
			amounts, _ := o.At("status", list).(map[string]any)
			for name := range amounts {
				if strings.Contains(name, "batch-") || strings.Contains(name, "mid-") {
					out = append(out, name)
				}
			}
		}
		return out
	}
	node, err := m.c.Admin().Wait(ctx, "/api/v1/nodes/"+m.k.Node, "node that lends nothing", func(o cluster.Object) bool { return len(left(o)) == 0 })
	if err != nil {
		t.Fatalf("%v; left %q", err, left(node))
	}
	for _, annotation := range []string{protocol.AnnotationOriginExtended, protocol.AnnotationLendingWeight} {
		if text := node.Str("metadata", "annotations", annotation); text != "" {
			t.Errorf("annotation %s left: %s", annotation, text)
		}
	}
}
