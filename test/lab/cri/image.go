// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// WaitImage polls until CRI knows the image, or ctx ends. An image that was imported
// beside CRI appears there later: containerd's CRI learns of it by an event.
func (c *Client) WaitImage(ctx context.Context, ref string) error {
	for {
		r, err := c.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		if err != nil {
			return fmt.Errorf("read status of image %s: %w", ref, err)
		}
		if r.Image != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for image %s: %w", ref, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
