// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package certs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// publish writes the authorities into the webhooks of both configurations where they are others. A patch by webhook name leaves
// the rest to whoever installed them.
func (k *Keeper) publish(ctx context.Context, roots []byte) error {
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	mutating.Name = k.options.Mutating
	first := k.publishTo(ctx, &mutating, roots, func() (out []named) {
		for _, w := range mutating.Webhooks {
			out = append(out, named{w.Name, w.ClientConfig.CABundle})
		}
		return out
	})
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	validating.Name = k.options.Validating
	second := k.publishTo(ctx, &validating, roots, func() (out []named) {
		for _, w := range validating.Webhooks {
			out = append(out, named{w.Name, w.ClientConfig.CABundle})
		}
		return out
	})
	return errors.Join(first, second)
}

// named is a webhook's caBundle.
type named struct {
	name     string
	caBundle []byte
}

// publishTo patches one configuration. One that is not there is an error: nobody calls us without it.
func (k *Keeper) publishTo(ctx context.Context, o client.Object, roots []byte, webhooks func() []named) error {
	name := o.GetName()
	if name == "" {
		return nil
	}
	if err := k.read.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
		return fmt.Errorf("read webhook configuration: %w", err)
	}
	patch, err := bundlePatch(webhooks(), roots)
	if err != nil || patch == nil {
		return err
	}
	if err := k.write.Patch(ctx, o, client.RawPatch(types.StrategicMergePatchType, patch), owner); err != nil {
		return fmt.Errorf("publish the authority in webhook configuration %s: %w", name, err)
	}
	return nil
}

// bundlePatch is a strategic merge patch of the webhooks whose caBundle differs, nil when none does.
func bundlePatch(webhooks []named, roots []byte) ([]byte, error) {
	type clientConfig struct {
		CABundle []byte `json:"caBundle"`
	}
	type webhook struct {
		Name   string       `json:"name"`
		Client clientConfig `json:"clientConfig"`
	}
	var out struct {
		Webhooks []webhook `json:"webhooks"`
	}
	for _, w := range webhooks {
		if !bytes.Equal(w.caBundle, roots) {
			out.Webhooks = append(out.Webhooks, webhook{Name: w.name, Client: clientConfig{CABundle: roots}})
		}
	}
	if len(out.Webhooks) == 0 {
		return nil, nil
	}
	patch, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}
