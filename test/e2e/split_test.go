// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// lifecycleSplit gives the runtime more to tell than one message of ttrpc takes (4 MiB): pods with annotations as large as the API
// server allows, made while the plugin is away. It gets several messages and takes in and repairs what is in each.
func lifecycleSplit(r *rig) {
	const limit, total = 4 << 20, 9 << 19
	pods := 18
	if emulated() {
		pods = 5 // which takes ten seconds for each; NRI does not split fewer than nine objects
	}
	var runs []*kubelet.Running
	for i := range pods {
		p := lsPod("split-" + strconv.Itoa(i))
		p.Annotations = map[string]string{"example.com/notes": strings.Repeat("x", total/pods)}
		runs = append(runs, r.pod(p))
	}
	if r.differs(runs[0], wants("LS", "")) == nil {
		r.t.Fatal("the values stand without the plugin: this test would show nothing")
	}
	before := r.synchronizeMessages()
	r.up(standard, nil)
	r.eventually(5*time.Second, func() error { // containerd counts an answer after the plugin does
		if n := r.synchronizeMessages() - before; n < 2 {
			return fmt.Errorf("containerd has sent its list of %d bytes in %v messages of at most %d", total, n, limit)
		}
		return nil
	})
	if n := r.metric("koord_rt_nri_event_duration_seconds_count", `event="Synchronize"`); n != 1 {
		r.t.Errorf("the plugin was synchronised %v times", n)
	}
	r.eventually(5*time.Second, func() error {
		known, unmanaged := r.metric("koord_rt_nri_containers"), r.metric("koord_rt_nri_unmanaged_containers")
		if known != float64(pods) || unmanaged != float64(pods) {
			return fmt.Errorf("%v containers are known and %v were found, want %d", known, unmanaged, pods)
		}
		return nil
	})
	for _, run := range runs {
		r.soon(5*time.Second, run, wants("LS", ""))
	}
	r.says([]string{"explain", "default/" + runs[pods-1].Pod.Name}, "cpu.burst", "cpu-burst")
	r.oneConnection()
}

// synchronizeMessages is how many messages of Synchronize plugins have answered so far.
func (r *rig) synchronizeMessages() float64 {
	r.t.Helper()
	m, err := scrape(http.DefaultClient, r.host.Metrics)
	if err != nil {
		r.t.Fatal(err)
	}
	return sum(m, "containerd_nri_plugin_invocations_total", `operation="Synchronize"`, `status="success"`)
}
