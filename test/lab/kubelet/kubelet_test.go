// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubelet

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

const burstablePod = `
name: web
uid: 1234-abcd
labels: {app: web}
annotations: {a/b: c}
containers:
- name: main
  command: [sleep, "1"]
  env: {B: "2", A: "1"}
  resources:
    requests: {cpu: 500m, memory: 64Mi, kubernetes.io/batch-cpu: 1000}
    limits: {cpu: 1, memory: 128Mi}
- name: side
  resources:
    limits: {cpu: 250m}
`

func parse(t *testing.T, text string) (Pod, podDemand) {
	t.Helper()
	p, err := ParsePod([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	d, err := podDemandOf(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, d
}

func TestQuantity(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int64{
		"1": {1000, 1}, "500m": {500, 1}, "1.5": {1500, 2}, "0": {0, 0}, "1Ki": {1024000, 1024},
		"128Mi": {134217728000, 134217728}, "2k": {2000000, 2000}, "1e3": {1000000, 1000}, "100u": {1, 1},
		"1E": {0, 1000000000000000000}, "2E": {0, 2000000000000000000}, "1Gi": {1073741824000, 1073741824},
	} {
		milli, errMilli := Quantity(text).Milli()
		value, err := Quantity(text).Value()
		if want[0] == 0 && text != "0" {
			if errMilli == nil {
				t.Errorf("%s in thousandths does not fit and gave %d", text, milli)
			}
		} else if errMilli != nil || milli != want[0] {
			t.Errorf("%s: milli %d, %v; want %d", text, milli, errMilli, want[0])
		}
		if err != nil || value != want[1] {
			t.Errorf("%s: value %d, %v; want %d", text, value, err, want[1])
		}
	}
	for _, text := range []string{"", "m", "-1", "1x", "1/3", "0x10", "1 Mi", "Inf", "1.2.3"} {
		if v, err := Quantity(text).Value(); err == nil {
			t.Errorf("%q was accepted as %d", text, v)
		}
	}
}

func TestPodIsChecked(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"unknown field":  "name: a\nuid: b\nvolumes: []\ncontainers: [{name: c}]",
		"no uid":         "name: a\ncontainers: [{name: c}]",
		"bad uid":        "name: a\nuid: a_b\ncontainers: [{name: c}]",
		"a late init":    "name: a\nuid: b\ncontainers: [{name: c}, {name: d, init: true}]",
		"no containers":  "name: a\nuid: b",
		"repeated name":  "name: a\nuid: b\ncontainers: [{name: c}, {name: c}]",
		"bad quantity":   "name: a\nuid: b\ncontainers: [{name: c, resources: {limits: {cpu: 1z}}}]",
		"bad overhead":   "name: a\nuid: b\noverhead: {cpu: q}\ncontainers: [{name: c}]",
		"not a document": "[",
	} {
		if _, err := ParsePod([]byte(text)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestFormulas(t *testing.T) {
	t.Parallel()
	for milli, want := range map[int64][2]int64{
		0: {2, 0}, 1: {2, 1000}, 10: {10, 1000}, 250: {256, 25000}, 1000: {1024, 100000}, 300000: {262144, 30000000},
	} {
		if got := [2]int64{cpuShares(milli), cpuQuota(milli, quotaPeriod)}; got != want {
			t.Errorf("%d milli: shares and quota %v, want %v", milli, got, want)
		}
	}
	for shares, want := range map[int64]int64{2: 1, 1024: 39, 262144: 10000} {
		if got := cpuWeight(shares); got != want {
			t.Errorf("%d shares: weight %d, want %d", shares, got, want)
		}
	}
	type score struct {
		class    QoS
		critical bool
		request  int64
	}
	for in, want := range map[score]int64{
		{Guaranteed, false, 10}: -997, {BestEffort, false, 0}: 1000, {BestEffort, true, 0}: -997,
		{Burstable, false, 0}: 999, {Burstable, false, 100}: 900, {Burstable, false, 1000}: 3,
	} {
		if got := oomScoreAdj(in.class, in.critical, in.request, 1000); got != want {
			t.Errorf("%+v: oom_score_adj %d, want %d", in, got, want)
		}
	}
}

func TestQoS(t *testing.T) {
	t.Parallel()
	for resources, want := range map[string]QoS{
		"{}": BestEffort,
		"{requests: {kubernetes.io/batch-cpu: 1k}}":                           BestEffort,
		"{limits: {cpu: 0}}":                                                  BestEffort,
		"{limits: {cpu: 1, memory: 1Gi}}":                                     Guaranteed,
		"{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1000m}}":             Guaranteed,
		"{limits: {cpu: 1}}":                                                  Burstable,
		"{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 999m, memory: 1Gi}}": Burstable,
	} {
		_, d := parse(t, "name: a\nuid: b\ncontainers: [{name: c, resources: "+resources+"}]")
		if got := d.qos(); got != want {
			t.Errorf("%s: %s, want %s", resources, got, want)
		}
	}
}

func TestGroupPaths(t *testing.T) {
	t.Parallel()
	n := groupName{"lab-1", "kubepods", "burstable", "pod1234-abcd"}
	if got, want := n.path(Cgroupfs), "/lab-1/kubepods/burstable/pod1234-abcd"; got != want {
		t.Errorf("cgroupfs: %s, want %s", got, want)
	}
	want := "/lab_1.slice/lab_1-kubepods.slice/lab_1-kubepods-burstable.slice/lab_1-kubepods-burstable-pod1234_abcd.slice"
	if got := n.path(Systemd); got != want {
		t.Errorf("systemd: %s, want %s", got, want)
	}
	if got, want := n[1:2].path(Systemd), "/kubepods.slice"; got != want {
		t.Errorf("systemd: %s, want %s", got, want)
	}
}

func TestPodValues(t *testing.T) {
	t.Parallel()
	_, d := parse(t, burstablePod)
	v := podValues(d)
	// 500m + 250m (from the limit); both have CPU limits, one has a memory limit.
	if *v.shares != 768 || *v.quota != 125000 || v.memory != nil {
		t.Errorf("shares %d quota %d memory %v", *v.shares, *v.quota, v.memory)
	}
	_, d = parse(t, burstablePod+"overhead: {cpu: 250m, memory: 10Mi}\n")
	v = podValues(d)
	if *v.shares != 1024 || *v.quota != 150000 {
		t.Errorf("with overhead: shares %d quota %d", *v.shares, *v.quota)
	}
	sum := sumResources(v, d)
	if sum.CpuShares != 768 || sum.CpuQuota != 125000 {
		t.Errorf("sum without overhead: %v", sum)
	}
	const starts = "containers:\n- name: first\n  init: true\n  resources: {requests: {cpu: 1}, limits: {cpu: 2}}\n"
	_, d = parse(t, strings.Replace(burstablePod, "containers:\n", starts, 1))
	if v = podValues(d); *v.shares != 1024 || *v.quota != 200000 {
		t.Errorf("with an init container of more than all others: shares %d quota %d", *v.shares, *v.quota)
	}
}

// On cgroup v2 the requests carry memory.oom.group and the swap limit, on v1 neither.
func TestConfigs(t *testing.T) {
	t.Parallel()
	p, d := parse(t, burstablePod)
	k := &Kubelet{
		options: Options{Image: "img", LogDir: "/logs", MemoryCapacity: 640 << 20},
		groups:  groups{driver: Systemd, tree: cgroups.Tree{Unified: "/sys/fs/cgroup"}},
		root:    groupName{"kubepods"},
		swap:    true,
	}
	pod := k.sandboxConfig(p, d, k.podGroup(p, d.qos()), 0)
	wantPod := &runtimeapi.LinuxContainerResources{
		CpuShares: 768, CpuQuota: 125000, CpuPeriod: 100000, MemoryLimitInBytes: 128 << 20,
		Unified: map[string]string{"memory.oom.group": "1"},
	}
	if diff := cmp.Diff(wantPod, pod.Linux.Resources, protocmp.Transform()); diff != "" {
		t.Errorf("sandbox resources (-want +have):\n%s", diff)
	}
	parent := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_abcd.slice"
	if pod.Linux.CgroupParent != parent {
		t.Errorf("cgroup parent %s, want %s", pod.Linux.CgroupParent, parent)
	}
	if pod.Labels["io.kubernetes.pod.uid"] != p.UID || pod.Labels["app"] != "web" || pod.Annotations["a/b"] != "c" {
		t.Errorf("labels %v annotations %v", pod.Labels, pod.Annotations)
	}
	c := k.containerConfig(p, p.Containers[0], d.qos(), d.containers[0], 0)
	want := &runtimeapi.LinuxContainerResources{
		CpuShares: 512, CpuQuota: 100000, CpuPeriod: 100000, MemoryLimitInBytes: 128 << 20, OomScoreAdj: 900,
		Unified: map[string]string{"memory.oom.group": "1", "memory.swap.max": "0"},
	}
	if diff := cmp.Diff(want, c.Linux.Resources, protocmp.Transform()); diff != "" {
		t.Errorf("container resources (-want +have):\n%s", diff)
	}
	if len(c.Envs) != 2 || c.Envs[0].Key != "A" {
		t.Errorf("env is not in order: %v", c.Envs)
	}
	k.groups.tree, k.swap = cgroups.Tree{Controllers: map[string]string{"cpu": "/c"}}, false
	c = k.containerConfig(p, p.Containers[0], d.qos(), d.containers[0], 0)
	if c.Linux.Resources.Unified != nil || c.Linux.Resources.MemorySwapLimitInBytes != 0 {
		t.Errorf("cgroup v1 without swap accounting: %v", c.Linux.Resources)
	}
	if !strings.HasSuffix(k.groups.dir(groupName{"a"}, "cpu"), "/c/a.slice") || k.groups.dir(groupName{"a"}, "none") != "" {
		t.Error("directory of a controller")
	}
}
