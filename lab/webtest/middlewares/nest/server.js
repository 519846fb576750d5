// Serves orders behind @node-idempotency/nestjs, for idem-conform. docs/conform.md has what it found. JavaScript has no decorators: they are applied by hand.
//
//	npm install --no-save @nestjs/{core,common,platform-express}@10 reflect-metadata@0.1 rxjs@7 @node-idempotency/nestjs@1.0.4 && node server.js
require('reflect-metadata')
const { NestFactory } = require('@nestjs/core')
const { Controller, Module, Post } = require('@nestjs/common')
const { Idempotent, NodeIdempotencyModule } = require('@node-idempotency/nestjs')

let orders = 0
class Orders {
  async place() {
    const order = ++orders
    await new Promise(done => setTimeout(done, 20)) // so that requests overlap
    return { order }
  }
}
const place = Object.getOwnPropertyDescriptor(Orders.prototype, 'place')
Post('nest')(Orders.prototype, 'place', place)
Idempotent({ enforceIdempotency: true })(Orders.prototype, 'place', place)
Controller()(Orders)

class Shop {}
Module({
  imports: [NodeIdempotencyModule.forRootAsync({ storage: { adapter: 'memory' }, enforceIdempotency: true })],
  controllers: [Orders],
})(Shop)

NestFactory.create(Shop, { logger: ['error'] }).then(app => app.listen(8092, '127.0.0.1'))
