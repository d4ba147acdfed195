// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/model/unit"
)

// Change is what somebody else than a plan wants of a creation: an external hook server.
type Change struct {
	// Labels and Annotations are added or changed entries.
	Labels, Annotations map[string]string
	// CgroupParent is the new parent, empty when it stays.
	CgroupParent string
	// EnvRemoved are names of variables that go.
	EnvRemoved []string
	// Swap is the limit of memory and swap in bytes.
	Swap unit.Opt
}

// Edit returns the body with the change made. Errors are ErrBody and ErrAmbiguous.
func (c *Create) Edit(ch Change) ([]byte, error) {
	var root, host []edit
	labels := maps.Clone(ch.Labels)
	if labels == nil {
		labels = make(map[string]string, len(ch.Annotations))
	}
	for k, v := range ch.Annotations {
		labels[AnnotationPrefix+k] = v
	}
	if len(labels) > 0 {
		text, err := c.labels(labels)
		if err != nil {
			return nil, fmt.Errorf("edit Labels: %w", err)
		}
		root = append(root, edit{"Labels", text})
	}
	if len(ch.EnvRemoved) > 0 {
		gone := make(map[string]bool, len(ch.EnvRemoved))
		for _, name := range ch.EnvRemoved {
			gone[name] = true
		}
		left := slices.DeleteFunc(slices.Clone(c.env), func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return gone[name]
		})
		text, err := json.Marshal(left)
		if err != nil {
			return nil, fmt.Errorf("edit Env: %w", err)
		}
		root = append(root, edit{"Env", text})
	}
	if c.hostObject.raw != nil {
		if ch.CgroupParent != "" {
			host = append(host, edit{"CgroupParent", quote(ch.CgroupParent)})
		}
		if ch.Swap.Set {
			host = append(host, edit{"MemorySwap", strconv.AppendInt(nil, ch.Swap.V, 10)})
		}
	}
	if len(host) > 0 {
		text, err := c.hostObject.with(host)
		if err != nil {
			return nil, fmt.Errorf("edit HostConfig: %w", err)
		}
		root = append(root, edit{"HostConfig", text})
	}
	return c.root.with(root)
}

// labels is the Labels object with entries set.
func (c *Create) labels(set map[string]string) ([]byte, error) {
	o := object{raw: []byte("{}"), end: 1}
	v, err := c.root.get("Labels")
	if err == nil && v != nil {
		o, err = parseObject(v)
	}
	if err != nil {
		return nil, err
	}
	o.exact = true
	edits := make([]edit, 0, len(set))
	known := make(map[string]bool, len(o.members))
	for i := range o.members {
		known[o.members[i].key] = true
	}
	for _, k := range slices.Sorted(maps.Keys(set)) {
		if known[k] || plainKey(k) {
			edits = append(edits, edit{k, quote(set[k])})
			continue
		}
		return nil, fmt.Errorf("%w: label name %q", ErrBody, k)
	}
	return o.with(edits)
}

// plainKey reports a name that stands in JSON as it is.
func plainKey(k string) bool {
	return !strings.ContainsFunc(k, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' })
}

// CgroupParent is the parent that the body asks for.
func (c *Create) CgroupParent() string { return c.host.CgroupParent }

// CgroupParent is the container's parent as it was asked for.
func (in *Inspect) CgroupParent() string { return in.HostConfig.CgroupParent }

// Env is the variables that the body asks for by name. They may hold secrets and must not be logged.
func (c *Create) Env() map[string]string {
	out := make(map[string]string, len(c.env))
	for _, kv := range c.env {
		name, value, _ := strings.Cut(kv, "=")
		out[name] = value
	}
	return out
}

// Split separates Docker's labels into a pod's or container's own labels and the annotations among them.
func Split(all map[string]string) (labels, annotations map[string]string) { return split(all) }
