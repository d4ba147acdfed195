// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hook_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

func TestOfTheModel(t *testing.T) {
	t.Parallel()
	base := workload.Resources{
		Shares: unit.Some(512), Quota: unit.Some(-1), Period: unit.Some(100000), CPUs: "0-3", Mems: "0", MemoryLimit: unit.Some(4096),
		OOMScoreAdj: unit.Some(-998), Unified: map[string]string{"memory.high": "7"},
	}
	want := &hook.Resources{Shares: 512, Quota: -1, Period: 100000, CPUs: "0-3", Mems: "0", Memory: 4096, OOMScoreAdj: -998,
		Unified: map[string]string{"memory.high": "7"}}
	if diff := cmp.Diff(want, hook.ResourcesOf(&base)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(&hook.Resources{}, hook.ResourcesOf(&workload.Resources{MemoryLimit: unit.Some(-1)})); diff != "" {
		t.Error(diff)
	}
	if got := hook.PodOf(&workload.Pod{Name: "n", UID: "u", Namespace: "s"}); got != (hook.Pod{Name: "n", UID: "u", Namespace: "s"}) {
		t.Error(got)
	}
	if got := hook.ContainerOf(&workload.Container{ID: "i", Name: "n"}); got != (hook.Container{ID: "i", Name: "n"}) {
		t.Error(got)
	}
}
