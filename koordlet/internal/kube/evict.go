// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// deleteOptions is metav1.DeleteOptions as far as it is used.
type deleteOptions struct {
	APIVersion         string        `json:"apiVersion,omitempty"`
	Kind               string        `json:"kind,omitempty"`
	GracePeriodSeconds *int64        `json:"gracePeriodSeconds,omitempty"`
	Preconditions      preconditions `json:"preconditions"`
}

type preconditions struct {
	UID string `json:"uid"`
}

// eviction is policy/v1 Eviction.
type eviction struct {
	APIVersion    string        `json:"apiVersion"`
	Kind          string        `json:"kind"`
	Metadata      named         `json:"metadata"`
	DeleteOptions deleteOptions `json:"deleteOptions"`
}

type named struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Evict asks for the eviction of exactly the pod with this UID (policy/v1). grace replaces the pod's own grace period when
// it is not negative; it is rounded up to seconds. Answers beside nil: [ErrBudget] with a RetryAfter in [Error],
// [ErrNotFound] and [ErrConflict] when that pod is gone already, [ErrBusy], [ErrDenied].
func (c *Client) Evict(ctx context.Context, namespace, name, uid string, grace time.Duration) error {
	body, err := json.Marshal(eviction{
		APIVersion: "policy/v1", Kind: "Eviction", Metadata: named{namespace, name}, DeleteOptions: options(uid, grace),
	})
	if err != nil {
		return fmt.Errorf("encode eviction: %w", err)
	}
	r := Resource{Version: "v1", Plural: "pods", Namespace: namespace}
	return c.write(ctx, r, request{method: http.MethodPost, path: r.path(name, "eviction"), contentType: plainJSON, body: body})
}

// DeletePod deletes exactly the pod with this UID, past any budget. Answers as [Client.Evict]'s.
func (c *Client) DeletePod(ctx context.Context, namespace, name, uid string, grace time.Duration) error {
	o := options(uid, grace)
	o.APIVersion, o.Kind = "v1", "DeleteOptions"
	body, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode deletion: %w", err)
	}
	r := Resource{Version: "v1", Plural: "pods", Namespace: namespace}
	return c.write(ctx, r, request{method: http.MethodDelete, path: r.path(name), contentType: plainJSON, body: body})
}

func options(uid string, grace time.Duration) deleteOptions {
	o := deleteOptions{Preconditions: preconditions{UID: uid}}
	if grace >= 0 {
		seconds := int64((grace + time.Second - 1) / time.Second)
		o.GracePeriodSeconds = &seconds
	}
	return o
}
