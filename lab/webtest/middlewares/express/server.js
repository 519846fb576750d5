// Serves orders behind express-idempotency, for idem-conform. docs/conform.md has what it found.
//
//	npm install --no-save express@5 express-idempotency@1.0.6 && node server.js
const express = require('express')
const { idempotency, getSharedIdempotencyService } = require('express-idempotency')

let orders = 0
const app = express()
app.use(express.json())
app.use(idempotency())
app.post('/express', (req, res) => {
  if (getSharedIdempotencyService().isHit(req)) return // it has answered
  const order = ++orders
  setTimeout(() => res.status(201).json({ order }), 20) // so that requests overlap
})
app.listen(8091, '127.0.0.1')
