// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/node"
)

// kill ends the plugin as kill -9 would: what stands in the kernel stays.
func (h *host) kill() {
	h.kernel.mu.Lock()
	h.kernel.dead = true
	h.kernel.mu.Unlock()
	h.stop()
}

// reborn is the next life of the plugin on the machine of one that was killed, with the ledger that it has left.
func (h *host) reborn(t *testing.T, kernel, strategy string, features map[string]config.Mode) *host {
	t.Helper()
	m := h.machine
	return newHostWith(t, kernel, nil, func(next *host, o *engine.Options) {
		cfg := o.Config
		cfg.Features = features
		life := m.Options(t, cfg, o.Edge, strategy, hostKnobs()...)
		next.machine, next.tree, next.journal, next.views = m, m.Tree, m.Journal, life.Views
		next.kernel = &slowKernel{Kernel: life.Kernel}
		life.Kernel, life.Live, life.CgroupRoot, life.Drift = next.kernel, &engine.Live{Resctrl: m.Tree.Roots.Resctrl}, m.Tree.Roots.Cgroup, o.Drift
		life.Past = engine.NewPast(m.Journal.All())
		life.Past.Keep(m.Writer(t, nil).Recall(m.Journal.All()))
		*o = life
	})
}

// What an earlier life has written by itself to pods, containers and above, and nobody wants any more, goes back to what stood
// there before: a feature was switched off, or strategy and annotation have gone, while nobody was there. What somebody else
// has written over it meanwhile stays theirs.
func TestRestartGivesBackWhatWasWritten(t *testing.T) {
	t.Parallel()
	off := map[string]config.Mode{}
	for _, f := range protocol.Features() {
		off[f.String()] = config.ModeOff
	}
	observed := map[string]config.Mode{}
	for _, f := range protocol.Features() {
		observed[f.String()] = config.ModeObserve
	}
	for _, kernel := range []string{"v1", "6.12"} {
		for name, next := range map[string]struct {
			strategy string
			features map[string]config.Mode
		}{
			"features off":      {nodeStrategy, off},
			"features observed": {nodeStrategy, observed},
			"strategy gone":     {"cpuBurstStrategy: {policy: none}", nil},
		} {
			t.Run(kernel+"/"+name, func(t *testing.T) {
				t.Parallel()
				givenBack(t, kernel, next.strategy, next.features)
			})
		}
	}
}

func givenBack(t *testing.T, kernel, strategy string, features map[string]config.Mode) {
	t.Helper()
	first := newHost(t, kernel)
	first.run(t)
	v2 := first.tree.Version == node.CgroupV2
	burst, weight, theirs := "cpu.cfs_burst_us", "cpu.shares", "cpu.cfs_quota_us"
	if v2 {
		burst, weight, theirs = "cpu.max.burst", "cpu.weight", "memory.low"
	}
	be := first.sandbox(t, "be", "BE", map[string]string{protocol.AnnotationExtendedResource: batch})
	first.tree.Set(t, be.Linux.CgroupParent, weight, "77") // not what the kubelet asks of the runtime
	must(t, first.rt.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: be}))
	lsr := first.pod(t, "lsr", "LSR", map[string]string{protocol.AnnotationResourceStatus: `{"cpuset":"0-3"}`})
	pods := []*api.PodSandbox{be, first.pod(t, "web", "LS", nil), lsr}
	var ctrs []*api.Container
	for _, sb := range pods {
		ctr := ctrOf(sb, "app")
		first.create(t, sb, ctr)
		must(t, first.start(t, sb, ctr))
		ctr.State = api.ContainerState_CONTAINER_RUNNING
		ctrs = append(ctrs, ctr)
	}
	bePod, webPod, lsrPod := be.Linux.CgroupParent, pods[1].Linux.CgroupParent, pods[2].Linux.CgroupParent
	stands := func(what string, h *host, dir, file string, ok func(string) bool) {
		t.Helper()
		enginetest.Eventually(t, what+" in "+dir+"/"+file, func() bool { return ok(h.tree.Get(t, dir, file)) })
	}
	is := func(want string) func(string) bool { return func(got string) bool { return got == want } }
	not := func(none string) func(string) bool { return func(got string) bool { return got != none } }
	stands("our value", first, webPod, burst, is("100000"))
	stands("our value", first, ctrs[1].Linux.CgroupsPath, burst, is("100000"))
	stands("our value", first, bePod, weight, not("77"))
	if v2 {
		stands("our value", first, "/kubepods", "memory.min", not("0"))
		stands("our value", first, lsrPod, "memory.min", not("0"))
		stands("our value", first, lsrPod, theirs, not("0"))
	} else {
		stands("our value", first, lsrPod, theirs, is("-1"))
	}
	first.kill()
	first.tree.Set(t, lsrPod, theirs, "8192") // somebody else's from now on

	delete(be.Annotations, protocol.AnnotationExtendedResource)
	delete(lsr.Annotations, protocol.AnnotationResourceStatus)
	second := first.reborn(t, kernel, strategy, features)
	second.rt = newRuntime(t, second.socket)
	for i, sb := range pods {
		second.rt.add(sb, ctrs[i])
	}
	second.run(t)
	stands("nothing of ours", second, webPod, burst, is("0"))
	stands("nothing of ours", second, ctrs[1].Linux.CgroupsPath, burst, is("0"))
	stands("what stood there before us", second, bePod, weight, is("77"))
	if v2 {
		stands("nothing of ours", second, lsrPod, "memory.min", is("0"))
		stands("nothing of ours", second, "/kubepods", "memory.min", is("0"))
		stands("nothing of ours", second, "/kubepods", "memory.low", is("0"))
	}
	if got := second.tree.Get(t, lsrPod, theirs); got != "8192" {
		t.Errorf("%s of %s is %s: somebody else had set it to 8192", theirs, lsrPod, got)
	}
}
