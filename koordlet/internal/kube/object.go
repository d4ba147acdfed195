// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// NodeResourceTopologies are koordlet's own objects: it makes the one of its node.
var NodeResourceTopologies = Resource{Group: "topology.node.k8s.io", Version: "v1alpha1", Plural: "noderesourcetopologies"}

// mergePatch is RFC 7386: null removes a key, lists are replaced.
const mergePatch = "application/merge-patch+json"

// Create makes an object. manager is the field manager. One that exists already is ErrConflict.
func (c *Client) Create(ctx context.Context, r Resource, manager string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", r, err)
	}
	return c.write(ctx, r, request{method: http.MethodPost, path: r.path(), query: url.Values{"fieldManager": {manager}}, contentType: plainJSON, body: body})
}

// Try asks whether an object could be made: the API server does all of it but store it (dryRun=All). Answers are those of [Client.Create]. It
// is no write, and nobody is told of one.
func (c *Client) Try(ctx context.Context, r Resource, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", r, err)
	}
	_, err = c.call(ctx, request{method: http.MethodPost, path: r.path(), query: url.Values{"dryRun": {"All"}}, contentType: plainJSON, body: body})
	return err
}

// Merge changes parts of an object. A patch that names metadata.resourceVersion is ErrConflict when somebody else has
// written meanwhile; a missing object is ErrNotFound.
func (c *Client) Merge(ctx context.Context, r Resource, name, manager string, patch any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch of %s %s: %w", r, name, err)
	}
	return c.write(ctx, r, request{method: http.MethodPatch, path: r.path(name), query: url.Values{"fieldManager": {manager}}, contentType: mergePatch, body: body})
}
