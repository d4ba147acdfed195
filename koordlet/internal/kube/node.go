// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
)

// Node is what is kept of a Node object.
type Node struct {
	Name, UID string
	// Labels and Annotations hold the keys of Koordinator's domains, of HAMi and of our own; nil without any.
	Labels, Annotations map[string]string
	// Capacity is the machine's, Allocatable what pods may use of it, both with batch-* and mid-* resources.
	Capacity, Allocatable amount.Amounts
}

// wireNode are the fields of v1 Node that are read.
type wireNode struct {
	Metadata struct {
		Name        string            `json:"name"`
		UID         string            `json:"uid"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Status struct {
		Capacity    amount.List `json:"capacity"`
		Allocatable amount.List `json:"allocatable"`
	} `json:"status"`
}

// DecodeNode reads a Node object. CPU and memory must be readable; other resources that are not count as absent.
func DecodeNode(raw []byte) (Node, error) {
	var w wireNode
	if err := json.Unmarshal(raw, &w); err != nil {
		return Node{}, fmt.Errorf("decode node: %w", err)
	}
	n := Node{
		Name: w.Metadata.Name, UID: w.Metadata.UID,
		Labels: nodeKeys(w.Metadata.Labels), Annotations: nodeKeys(w.Metadata.Annotations),
	}
	var errs [2]error
	n.Capacity, errs[0] = amount.Parse(w.Status.Capacity)
	n.Allocatable, errs[1] = amount.Parse(w.Status.Allocatable)
	for i, a := range []*amount.Amounts{&n.Capacity, &n.Allocatable} {
		// A node that has not registered yet has neither list.
		if errs[i] != nil && (a.CPU == 0 || a.Memory == 0) {
			return Node{}, fmt.Errorf("decode node: %w", errs[i])
		}
	}
	return n, nil
}

// nodeKeys copies the entries that koordlet reads. A value that is too long to be read stays too long, so that it is told of.
func nodeKeys(m map[string]string) map[string]string {
	var out map[string]string
	for key, value := range m {
		domain, _, ok := strings.Cut(key, "/")
		known := domain == "koordinator.sh" || strings.HasSuffix(domain, ".koordinator.sh") || domain == "koord-rt.dev" ||
			key == protocol.LabelHAMiVGPUNode || key == protocol.LabelDeprecatedGPUDriver || key == protocol.LabelDeprecatedGPUModel
		if !ok || !known {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value[:min(len(value), protocol.MaxValueBytes+1)]
	}
	return out
}
