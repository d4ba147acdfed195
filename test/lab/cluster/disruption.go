// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"context"
	"slices"
	"sync"
)

// Disruption is a pod that is about to be disrupted, by its condition DisruptionTarget.
type Disruption struct{ Name, UID, Reason string }

// Evicted is the reason that the API server gives a pod whose eviction it has accepted:
// https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions.
const Evicted = "EvictionByEvictionAPI"

// Disruptions follows a collection of pods until ctx ends; seen tells each that was about to be disrupted since then, once. A pod that is
// evicted may be gone before anybody looks, so that looks alone would not do.
func (c *Client) Disruptions(ctx context.Context, pods string) (seen func() []Disruption, err error) {
	list, err := c.Get(ctx, pods)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var out []Disruption
	path := withQuery(pods, "resourceVersion="+list.Str("metadata", "resourceVersion"))
	go func() {
		_ = c.Watch(ctx, path, func(e Event) bool { // what it has missed is missed by the test
			conditions, _ := e.Object.At("status", "conditions").([]any)
			for i := range conditions {
				at := func(field string) string { return e.Object.Str("status", "conditions", i, field) }
				if at("type") != "DisruptionTarget" || at("status") != "True" {
					continue
				}
				d := Disruption{e.Object.Str("metadata", "name"), e.Object.Str("metadata", "uid"), at("reason")}
				mu.Lock()
				if !slices.Contains(out, d) {
					out = append(out, d)
				}
				mu.Unlock()
			}
			return true
		})
	}()
	return func() []Disruption {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(out)
	}, nil
}
