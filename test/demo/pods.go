// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// strategyFile is the node strategy: NodeSLO as Koordinator's users write it, plus CPU burst.
const strategyFile = `apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeSLO
metadata:
  name: demo
spec:
  cpuBurstStrategy: {policy: auto, cpuBurstPercent: 100}
  resourceQOSStrategy:
    lsrClass:
      cpuQOS: {enable: true, groupIdentity: 0}
      memoryQOS: {enable: true, minLimitPercent: 100, lowLimitPercent: 100, throttlingPercent: 120, wmarkRatio: 95, wmarkScalePermill: 50, wmarkMinAdj: -25}
    lsClass:
      cpuQOS: {enable: true, groupIdentity: 2}
      memoryQOS: {enable: true, minLimitPercent: 0, lowLimitPercent: 0, throttlingPercent: 100, wmarkRatio: 90, wmarkScalePermill: 30, wmarkMinAdj: -25}
    beClass:
      cpuQOS: {enable: true, groupIdentity: -1}
      memoryQOS: {enable: true, minLimitPercent: 0, lowLimitPercent: 0, throttlingPercent: 100, wmarkRatio: 80, wmarkScalePermill: 30, wmarkMinAdj: 50}
`

// machine is what the pods are cut to.
type machine struct {
	// cpus are the CPUs online, ascending.
	cpus []int
	// disk is a whole disk such as /dev/vda, empty when there is none to limit.
	disk string
}

// pods makes the three pods, in the order of their creation: the one that owns a CPU comes last, so that the others
// must move away. On a machine of one CPU nothing can be pinned.
func pods(m machine) []kubelet.Pod {
	ls := kubelet.Pod{
		Name: "web", UID: "de300000-0000-4000-8000-000000000001",
		Labels:      map[string]string{"koordinator.sh/qosClass": "LS"},
		Annotations: map[string]string{"koordinator.sh/memoryQOS": `{"policy":"auto","lowLimitPercent":50}`},
		Containers: []kubelet.Container{{Name: "app", Resources: kubelet.Resources{
			Requests: quantities("250m", "64Mi"), Limits: quantities("500m", "128Mi"),
		}}},
	}
	be := kubelet.Pod{
		Name: "job", UID: "de300000-0000-4000-8000-000000000002",
		Labels: map[string]string{"koordinator.sh/qosClass": "BE"},
		Annotations: map[string]string{
			"node.koordinator.sh/extended-resource-spec": `{"containers":{"work":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"128Mi"},` +
				`"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"256Mi"}}}}`,
			"koordinator.sh/oom-score-adj": "900",
		},
		Containers: []kubelet.Container{{Name: "work"}},
	}
	if m.disk != "" {
		be.Annotations["koordinator.sh/blkioQOS"] = fmt.Sprintf(`{"blocks":[{"name":%q,"type":"device","ioCfg":{"writeBPS":10485760}}]}`, m.disk)
	}
	lsr := kubelet.Pod{
		Name: "db", UID: "de300000-0000-4000-8000-000000000003",
		Labels: map[string]string{"koordinator.sh/qosClass": "LSR"},
		Containers: []kubelet.Container{{Name: "pg", Resources: kubelet.Resources{
			Requests: quantities("1", "64Mi"), Limits: quantities("1", "64Mi"),
		}}},
	}
	if len(m.cpus) > 1 {
		lsr.Annotations = map[string]string{
			"scheduling.koordinator.sh/resource-status": fmt.Sprintf(`{"cpuset":"%d"}`, m.cpus[len(m.cpus)-1]),
		}
	}
	return []kubelet.Pod{ls, be, lsr}
}

func quantities(cpu, memory string) map[string]kubelet.Quantity {
	return map[string]kubelet.Quantity{"cpu": kubelet.Quantity(cpu), "memory": kubelet.Quantity(memory)}
}

// wholeDisk finds a disk whose device node exists: nothing is written to it, only a limit is set.
func wholeDisk(sys, dev string) string {
	for _, pattern := range []string{"vd?", "sd?", "xvd?", "nvme?n1"} {
		found, err := filepath.Glob(filepath.Join(sys, "block", pattern))
		if err != nil {
			continue
		}
		for _, f := range found {
			node := filepath.Join(dev, filepath.Base(f))
			if st, err := os.Stat(node); err == nil && st.Mode()&os.ModeDevice != 0 {
				return node
			}
		}
	}
	return ""
}

// promise is what the pod asks for, in a line.
func promise(p kubelet.Pod) string {
	var out []string
	for _, kv := range []struct{ key, text string }{
		{"scheduling.koordinator.sh/resource-status", "owns its CPU (resource-status)"},
		{"node.koordinator.sh/extended-resource-spec", "batch-cpu 500m/1000m, batch-memory 256Mi (extended-resource-spec)"},
		{"koordinator.sh/memoryQOS", "memory protection (memoryQOS)"},
		{"koordinator.sh/oom-score-adj", "oom-score-adj"},
		{"koordinator.sh/blkioQOS", "disk writes 10 MiB/s (blkioQOS)"},
	} {
		if _, ok := p.Annotations[kv.key]; ok {
			out = append(out, kv.text)
		}
	}
	if r := p.Containers[0].Resources; len(r.Limits) > 0 {
		out = append([]string{fmt.Sprintf("limits cpu %s, memory %s", r.Limits["cpu"], r.Limits["memory"])}, out...)
	}
	return strings.Join(out, ", ")
}
