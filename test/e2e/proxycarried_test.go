// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// proxyCDI is the lifecycle CDI with the names in CRI requests.
func proxyCDI(p *viaProxy) {
	p.realDevices([]scenario.Device{{Path: "/dev/nvidia7", Major: 195, Minor: 7}})
	cdiDevices(p.rig, p.upProxy)
}

// proxyHAMi is the lifecycle HAMi with the mounts in CRI requests.
func proxyHAMi(p *viaProxy) {
	p.realDevices([]scenario.Device{{Path: "/dev/nvidia0", Major: 195}})
	hamiCore(p.rig, p.upProxy)
}

// proxySlowKernel lets every write of the proxy into a cgroup hang. Pods come up with what stands in the request, and metric and ledger
// say that decisions were late; one that demands its guarantee is ended, for nothing proves it.
func proxySlowKernel(p *viaProxy) {
	p.gated = true
	p.upProxy(standard, nil)
	p.notAlways("events are late while every write goes through", func(round string) float64 {
		p.soon(5*time.Second, p.pod(bePod("slow-"+round)), wants("BE", ""))
		return p.proxyMetric("koord_rt_cri_event_late_total")
	})
	p.gate.Shut()
	p.t.Cleanup(p.gate.Open)
	slow := p.pod(bePod("slow-be"))
	p.hangs()
	if p.differs(slow, wants("BE", "")) == nil {
		p.t.Error("a pod has all of its values although no write goes through")
	}
	p.now(slow, []string{"main @oom=900"})
	p.now(slow, map[bool][]string{false: {"main cpu.cfs_quota_us=50000"}, true: {"main cpu.max=50000 100000"}}[p.tree.V2()])

	demands := bePod("slow-demands")
	demands.Annotations = mergeMaps(demands.Annotations, map[string]string{protocol.AnnotationRequired: "batch"})
	run, err := p.kube.StartPod(p.t.Context(), demands)
	if err != nil {
		p.t.Fatal(err)
	}
	p.cleanPod(run)
	p.eventually(10*time.Second, func() error {
		st, _, err := p.host.CRI().ContainerStatus(p.t.Context(), run.Containers["main"])
		if err == nil && st.State != runtimeapi.ContainerState_CONTAINER_EXITED {
			err = fmt.Errorf("a container whose guarantee is not proved is %s", st.State)
		}
		if err == nil && !strings.Contains(p.out.String(), `what="required guarantee"`) {
			err = errors.New("the log does not say why the container was ended")
		}
		return err
	})
	if p.proxyMetric("koord_rt_cri_event_late_total") == 0 {
		p.t.Error("no event is counted as late")
	}
	if p.proxyMetric("koord_rt_cri_fail_open_total", `reason="deadline"`) == 0 {
		p.t.Error("no request is counted that went on without its decision")
	}
	p.gate.Open()
	p.soon(10*time.Second, slow, wants("BE", ""))
	p.soon(10*time.Second, p.pod(bePod("slow-after")), wants("BE", ""))
	p.eventually(5*time.Second, func() error {
		for _, r := range p.records() {
			if r.Via == journal.ViaProblem && strings.Contains(r.Reason, "decision is late: the request went on as it came") {
				return nil
			}
		}
		return errors.New("the ledger does not say that a request went on without its decision")
	})
}
