// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package profile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/policy/profile"
)

// TestSchedule is decision 2 of seed-manifests.md 1.1.
func TestSchedule(t *testing.T) {
	t.Parallel()
	owned := func(list ...profile.Owner) []profile.Reservation {
		return []profile.Reservation{{Name: "z", Owners: list}, {Name: "of-another", Owners: []profile.Owner{{Object: &profile.ObjectRef{Name: "nobody"}}}}}
	}
	apps := &profile.Controller{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "u1"}
	for name, c := range map[string]struct {
		pod          profile.Pod
		quota        bool
		reservations []profile.Reservation
		want         string
	}{
		"M2: a priority class of somebody's own": {pod: profile.Pod{PriorityClassName: "high-priority", Priority: ptr(int32(100000))}},
		"M3: nothing of Koordinator's":           {pod: profile.Pod{SchedulerName: "default-scheduler"}},
		"M16: koord-batch":                       {pod: profile.Pod{PriorityClassName: "koord-batch"}, want: "priority class koord-batch"},
		"a label":                                {pod: profile.Pod{Labels: map[string]string{"env": "test", "koordinator.sh/priority": "5300"}}, want: "label koordinator.sh/priority"},
		"a quota's label":                        {pod: profile.Pod{Labels: map[string]string{"quota.scheduling.koordinator.sh/name": "a"}}, want: "label quota.scheduling.koordinator.sh/name"},
		"a device": {
			pod:  profile.Pod{Main: []profile.Container{asks("a", profile.Resources{"cpu": "1", "nvidia.com/gpu": "1"}, nil)}},
			want: "device nvidia.com/gpu",
		},
		"M4: a quota in the namespace": {pod: profile.Pod{SchedulerName: "default-scheduler"}, quota: true, want: "quota in the namespace"},
		"another scheduler":            {pod: profile.Pod{SchedulerName: "mine", PriorityClassName: "koord-batch"}, quota: true},
		"opted out":                    {pod: profile.Pod{PriorityClassName: "koord-batch", Labels: map[string]string{protocol.KeyKeepScheduler: "true"}}},
		"a reservation by labels": {
			pod: profile.Pod{Labels: map[string]string{"app": "spark", "role": "executor"}}, want: "reservation z",
			reservations: owned(profile.Owner{Pods: &profile.Selector{Labels: map[string]string{"app": "spark", "role": "executor"}}}),
		},
		"one of two labels": {
			pod:          profile.Pod{Labels: map[string]string{"app": "spark"}},
			reservations: owned(profile.Owner{Pods: &profile.Selector{Labels: map[string]string{"app": "spark", "role": "executor"}}}),
		},
		"a reservation by controller": {
			pod: profile.Pod{Namespace: "team", Controller: apps}, want: "reservation z",
			reservations: owned(profile.Owner{Controller: &profile.ControllerRef{Namespace: "team", Controller: profile.Controller{Kind: "ReplicaSet", Name: "web-1"}}}),
		},
		"controller of another namespace": {
			pod:          profile.Pod{Namespace: "other", Controller: apps},
			reservations: owned(profile.Owner{Controller: &profile.ControllerRef{Namespace: "team", Controller: *apps}}),
		},
		"controller of an earlier life": {
			pod:          profile.Pod{Namespace: "team", Controller: apps},
			reservations: owned(profile.Owner{Controller: &profile.ControllerRef{Controller: profile.Controller{Kind: "ReplicaSet", Name: "web-1", UID: "u0"}}}),
		},
		"no controller": {
			pod:          profile.Pod{},
			reservations: owned(profile.Owner{Controller: &profile.ControllerRef{Controller: *apps}}),
		},
		"a reservation by name": {
			pod: profile.Pod{Namespace: "team", Name: "a"}, want: "reservation z",
			reservations: owned(profile.Owner{Object: &profile.ObjectRef{Namespace: "team", Name: "a"}}),
		},
		"all parts must match": {
			pod: profile.Pod{Namespace: "team", Name: "a"},
			reservations: owned(profile.Owner{
				Object: &profile.ObjectRef{Name: "a"}, Pods: &profile.Selector{Labels: map[string]string{"app": "b"}},
			}),
		},
		"a pod that has been there already": {
			pod:          profile.Pod{Namespace: "team", Name: "a"},
			reservations: owned(profile.Owner{Object: &profile.ObjectRef{Name: "a", UID: "x"}}),
		},
		"a selector that means nothing": {
			pod:          profile.Pod{Namespace: "team", Name: "a"},
			reservations: owned(profile.Owner{Pods: &profile.Selector{Expressions: []profile.Expression{{Key: "a", Operator: "NotIn"}}}}),
		},
		"the empty owner is everybody": {pod: profile.Pod{}, reservations: owned(profile.Owner{}), want: "reservation z"},
		"no owners is nobody":          {pod: profile.Pod{}, reservations: owned()},
	} {
		p, before := c.pod, c.pod.SchedulerName
		reason, err := profile.Schedule(&p, "koord-scheduler", profile.Surroundings{
			Quota:        func() (bool, error) { return c.quota, nil },
			Reservations: func() ([]profile.Reservation, error) { return c.reservations, nil },
		})
		if err != nil || reason != c.want {
			t.Errorf("%s: %q, %v, want %q", name, reason, err, c.want)
		}
		scheduler := before
		if c.want != "" {
			scheduler = "koord-scheduler"
		}
		if p.SchedulerName != scheduler || p.Annotations[protocol.AnnotationSchedulerReason] != c.want {
			t.Errorf("%s: scheduler %q, annotations %v", name, p.SchedulerName, p.Annotations)
		}
	}
}

// TestScheduleByDevices: each resource that Koordinator's scheduler shares out brings a pod to it, in a container as in an init container, under the names of today and under
// those that its users may still have (koordinator-cluster.md 2.8), and no other resource does.
func TestScheduleByDevices(t *testing.T) {
	t.Parallel()
	for want, names := range map[bool]string{
		true: `koordinator.sh/gpu koordinator.sh/gpu.shared koordinator.sh/gpu-core koordinator.sh/gpu-memory koordinator.sh/gpu-memory-ratio
			koordinator.sh/rdma koordinator.sh/fpga nvidia.com/gpu amd.com/gpu dcu.com/gpu
			huawei.com/npu-core huawei.com/npu-cpu huawei.com/npu-dvpp
			kubernetes.io/rdma kubernetes.io/fpga kubernetes.io/gpu kubernetes.io/gpu-core kubernetes.io/gpu-memory kubernetes.io/gpu-memory-ratio`,
		false: `cpu memory kubernetes.io/batch-cpu koordinator.sh/batch-cpu kubernetes.io/mid-cpu huawei.com/Ascend910 gpu example.com/gpu koordinator.sh/gpus`,
	} {
		for name := range strings.FieldsSeq(names) {
			c := asks("a", profile.Resources{"cpu": "1", name: "1"}, nil)
			for where, p := range map[string]profile.Pod{"a container": {Main: []profile.Container{c}}, "an init container": {Init: []profile.Container{c}}} {
				reason, err := profile.Schedule(&p, "koord-scheduler", profile.Surroundings{})
				if err != nil || (reason == "device "+name) != want || (reason != "") != want || (p.SchedulerName == "koord-scheduler") != want {
					t.Errorf("%s in %s: %q, %v, scheduler %q", name, where, reason, err, p.SchedulerName)
				}
			}
		}
	}
}

func TestScheduleAsksNobodyForNothing(t *testing.T) {
	t.Parallel()
	around := profile.Surroundings{
		Quota:        func() (bool, error) { t.Error("quotas were read"); return false, nil },
		Reservations: func() ([]profile.Reservation, error) { t.Error("reservations were read"); return nil, nil },
	}
	for _, name := range []string{"", "default-scheduler"} {
		p := profile.Pod{PriorityClassName: "koord-batch", SchedulerName: "default-scheduler"}
		if reason, err := profile.Schedule(&p, name, around); reason != "" || err != nil || p.SchedulerName != "default-scheduler" || p.Annotations != nil {
			t.Errorf("scheduler %q: %q, %v, %+v", name, reason, err, p)
		}
	}
	p := profile.Pod{PriorityClassName: "koord-batch"}
	if reason, _ := profile.Schedule(&p, "koord-scheduler", around); reason == "" {
		t.Error("the pod's own class did not decide")
	}
	bad := errors.New("no answer")
	p = profile.Pod{}
	if _, err := profile.Schedule(&p, "koord-scheduler", profile.Surroundings{Quota: func() (bool, error) { return true, bad }}); !errors.Is(err, bad) || p.SchedulerName != "" {
		t.Errorf("an error changed the pod: %v, %q", err, p.SchedulerName)
	}
}
