// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/model/topo"
)

// Each annotation that cannot be read is named with node, key and reason; those that can, and those that are not there, are not.
func TestUnread(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"node.koordinator.sh/reservation": `{"resources":{"cpu":"2"},"reservedCPUs":"0-1"}`, "node.koordinator.sh/system-qos-resource": `{"cpuset":"0-1"}`,
		"node.koordinator.sh/cpu-normalization-ratio": "1.20", "node.koordinator.sh/raw-allocatable": `{"cpu":"32"}`,
	}
	for name, annotations := range map[string]map[string]string{"none": nil, "good": good} {
		if err := decide.Unread(&kube.Node{Name: "n1", Annotations: annotations}, topo.CPUs(0, 1)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := map[string]string{
		"node.koordinator.sh/reservation":             `{"reservedCPUs":"0-"}`,
		"node.koordinator.sh/system-qos-resource":     `{"cpuset":"x"}`,
		"node.koordinator.sh/cpu-normalization-ratio": "fast",
		"node.koordinator.sh/raw-allocatable":         `{"cpu":"many"}`,
	}
	var want []string
	for key, reason := range map[string]string{
		"node.koordinator.sh/reservation": "reservedCPUs: ", "node.koordinator.sh/system-qos-resource": "cpuset: ",
		"node.koordinator.sh/cpu-normalization-ratio": `"fast" is no number`, "node.koordinator.sh/raw-allocatable": "many",
	} {
		err := decide.Unread(&kube.Node{Name: "n1", Annotations: map[string]string{key: bad[key]}}, topo.CPUSet{})
		if err == nil || !strings.HasPrefix(err.Error(), "annotations of node n1 count as absent: "+key+": ") || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", key, err)
		}
		want = append(want, key)
	}
	all := decide.Unread(&kube.Node{Name: "n1", Annotations: bad}, topo.CPUSet{})
	for _, key := range want {
		if all == nil || !strings.Contains(all.Error(), key+": ") {
			t.Errorf("all of them: %v, want %s", all, key)
		}
	}
}

// CPUs that an annotation names and that are not online are named, and no others; those of a machine that is not known are not asked for.
func TestUnreadNamesMissingCPUs(t *testing.T) {
	t.Parallel()
	n := &kube.Node{Name: "n1", Annotations: map[string]string{
		"node.koordinator.sh/reservation": `{"reservedCPUs":"1-3,8"}`, "node.koordinator.sh/system-qos-resource": `{"cpuset":"2"}`,
		"node.koordinator.sh/cpu-normalization-ratio": "fast",
	}}
	const absent = `annotations of node n1 count as absent: node.koordinator.sh/cpu-normalization-ratio: `
	err := decide.Unread(n, topo.CPUs(0, 1))
	if err == nil || !strings.HasPrefix(err.Error(), absent) || !strings.HasSuffix(err.Error(), "; annotations of node n1 name CPUs that are not online: "+
		"node.koordinator.sh/reservation: 2-3,8; node.koordinator.sh/system-qos-resource: 2") {
		t.Errorf("told: %v", err)
	}
	for machine, cpus := range map[string]topo.CPUSet{"not known": {}, "larger": topo.CPUs(0, 1, 2, 3, 8)} {
		if err := decide.Unread(n, cpus); err == nil || !strings.HasPrefix(err.Error(), absent) || strings.Contains(err.Error(), "not online") {
			t.Errorf("%s: %v", machine, err)
		}
	}
}

// A value that is too long is not taken for one that is not there.
func TestUnreadTooLong(t *testing.T) {
	t.Parallel()
	long := `{"reservedCPUs":"0"` + strings.Repeat(" ", 70000) + "}"
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "n1", "annotations": map[string]string{"node.koordinator.sh/reservation": long}}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := kube.DecodeNode(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := decide.Unread(&n, topo.CPUSet{}); err == nil || !strings.Contains(err.Error(), "node.koordinator.sh/reservation: ") {
		t.Errorf("told: %v", err)
	}
}
