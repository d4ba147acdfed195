// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/topo"
)

// The View, its features and the source of its strategy are of one build, whatever is told meanwhile: a status would else show one strategy
// under the source of another.
func TestListIsOfOneBuild(t *testing.T) {
	t.Parallel()
	specs := map[string]*strategy.Spec{}
	for _, source := range []string{"true", "false"} {
		spec, err := strategy.Parse([]byte("resourceUsedThresholdWithBE: {enable: " + source + "}\n"))
		if err != nil {
			t.Fatal(err)
		}
		specs[source] = &spec
	}
	views := NewViews(config.Default().Node, Static{Topology: &topo.Topology{}}, specs["false"], "false")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			views.SetFile(specs["true"], "true")
			views.SetFile(specs["false"], "false")
		}
	}()
	for working := true; working; {
		select {
		case <-done:
			working = false
		default:
		}
		v, _, source := views.List()
		if on := v.Strategy.Threshold().Enable; on == nil || *on != (source == "true") {
			t.Fatalf("a View of source %s: enable %v", source, on)
		}
	}
	<-done
}
