// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// resized: a kubelet resizes a pod in place, and nobody tells koordlet of it. The new quota stands, and container and pod get the burst of it, which
// /events tells. Where the Node's ratio divides quotas the new one is divided, and what was found is told as a drift by the runtime. The
// kernel refuses the smaller quota of the way back below the burst that stands, until koordlet has seen the pod's new limit at the kubelet; that
// asks again. A koordlet that is killed meanwhile knows the pod's new limit in its next life. All of it without another start of the container. The pod is Burstable: a kubelet whose CPU manager is static resizes no CPUs of Guaranteed ones.
func (n *governed) resized(t *testing.T) {
	since := time.Now()
	n.create(t, "sized", "labels: {koordinator.sh/qosClass: LS}", "resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 100m, memory: 64Mi}}")
	pod := n.ready(t, "sized")
	has := func(quota, burst string) {
		t.Helper()
		begun := time.Now()
		eventually(t, 60*time.Second, func() error { return errors.Join(n.limits(pod, quota, burst), n.podLimits(pod, quota, burst)) })
		t.Logf("quota %s and burst %s of sized after %s", quota, burst, time.Since(begun).Round(time.Millisecond))
	}
	divided := func(quota string) {
		t.Helper()
		eventually(t, 60*time.Second, func() error { return n.limits(pod, quota, quota) })
	}
	has("10000", "10000")

	n.resizeTo(t, "sized", "20m", "150m")
	has("15000", "15000")
	n.tellsOf(t, since, "cpu.burst", func(e *audited) bool { return e.Via == "direct" && e.Want == "15000" && e.Err == "" })

	n.kill(t)
	n.reborn()
	n.normalize(t, "1.25")
	divided("12000")
	whole := "15000" // though the runtime lists the pod as it was made; on cgroup v1 a pod's own quota is not divided
	if n.tree.V2() {
		whole = "12000"
	}
	if err := n.podLimits(pod, whole, whole); err != nil {
		t.Errorf("after a restart of koordlet: %v", err)
	}

	n.resizeTo(t, "sized", "30m", "200m")
	divided("16000")
	n.tellsOf(t, since, "cpu.quota", func(e *audited) bool { return e.Via == "drift" && e.Found == "20000" && e.Source == "runtime" })
	n.sees(t, `koord_rt_koordlet_drift_total\{knob="cpu.quota",source="runtime"\} [1-9]\d*`)
	n.normalize(t, nil)
	has("20000", "20000")

	n.resizeTo(t, "sized", "10m", "100m")
	has("10000", "10000")
	eventually(t, 60*time.Second, func() error { return n.limits(n.ls, "10000", "10000") })
	n.remove(t, "sized")
	n.up(t)
}

// podLimits is limits of a pod's own cgroup.
func (n *governed) podLimits(pod cluster.Object, quota, burst string) error {
	file := "cpu.cfs_burst_us"
	if n.tree.V2() {
		file = "cpu.max.burst"
	}
	got, err := n.podQuota(pod)
	var has string
	if err == nil {
		has, err = cgroups.Read(n.podDir(pod, "cpu"), file)
	}
	if err == nil && (strconv.Itoa(got) != quota || has != burst) {
		err = fmt.Errorf("the cgroup of pod %s has quota %d and burst %s, want %s and %s", pod.Str("metadata", "name"), got, has, quota, burst)
	}
	return err
}

// tellsOf waits until koordlet tells such an event of a knob of sized's container.
func (n *governed) tellsOf(t *testing.T, since time.Time, knob string, is func(*audited) bool) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		list, err := n.events(t, since, knob)
		list = slices.DeleteFunc(list, func(e audited) bool { return e.Target.Name != "batch/sized/main" })
		if err == nil && !slices.ContainsFunc(list, func(e audited) bool { return is(&e) }) {
			err = fmt.Errorf("/events of %s of sized: %+v", knob, list)
		}
		return err
	})
}
